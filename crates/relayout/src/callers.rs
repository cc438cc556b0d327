//! The callers of sampled functions, from the tops of stacks: exactly one frame is unwound.
//!
//! The description of the sampled function's frames tells at each instruction, also in prologue and
//! epilogue, where the return address is. Neither frame pointers nor a memory image of the process are
//! needed.

use std::collections::HashMap;

use gimli::write::CallFrameInstruction as Instruction;
use gimli::{Register, X86_64};

use crate::Module;
use crate::frame::{Frame, FrameState};
use crate::stacks::{Stack, Stacks};

/// A caller of a sampled function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caller {
    /// Start address of the function that was sampled.
    pub function: u64,
    /// Where the function returns to; `None`: to code outside of its file.
    pub return_address: Option<u64>,
}

/// Adds the callers in the stacks of samples in these modules. Samples whose caller is unknown are left out.
pub(crate) fn add(callers: &mut HashMap<Caller, u64>, modules: &[&Module], stacks: &Stacks) {
    let mut frames: HashMap<u64, Option<Frame>> = HashMap::new();
    for stack in stacks.iter() {
        let at = stack.instruction;
        let found = modules.iter().find_map(|module| Some((*module, module.function_at(at)?)));
        let Some((module, function)) = found else { continue };
        let frame =
            frames.entry(function.start).or_insert_with(|| Frame::read(module, function).ok());
        let state = frame.as_ref().map(|frame| frame.state(frame.row_at(at)));
        let Some(returns_to) = state.and_then(|state| return_address(state, &stack)) else {
            continue;
        };
        let return_address = Some(returns_to).filter(|at| module.is_executable(*at));
        *callers.entry(Caller { function: function.start, return_address }).or_default() += 1;
    }
}

/// The return address, if its place follows from the registers that were recorded.
fn return_address(state: &FrameState, stack: &Stack<'_>) -> Option<u64> {
    let place = return_place(state)?;
    let base = match place.register {
        X86_64::RSP => 0,
        X86_64::RBP => stack.frame_pointer?,
        _ => return None,
    };
    stack.code_at(base.checked_add_signed(place.offset)?)
}

/// Where a return address is, relative to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReturnPlace {
    register: Register,
    /// In bytes.
    offset: i64,
}

/// `None`: it does not follow from one register, or there is no caller.
fn return_place(state: &FrameState) -> Option<ReturnPlace> {
    let Some(Instruction::Cfa(register, frame)) = state.cfa else { return None };
    match state.rules.get(&X86_64::RA.0) {
        Some(Instruction::Offset(_, offset)) => {
            Some(ReturnPlace { register, offset: i64::from(frame) + i64::from(*offset) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::decode;

    /// At each instruction of each function the place is known, unless the compiler aligned the stack by a third
    /// register or the linker wrote the description.
    #[test]
    fn return_address_has_a_known_place_at_nearly_every_instruction() {
        let file = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
        let module = Module::parse("libc.so.6", &file, 0x7f12_3456_7000).unwrap();
        let (mut known, mut unknown) = (0_u32, 0_u32);
        for function in module.functions().iter().filter(|it| !it.linker) {
            let Ok(frame) = Frame::read(&module, function) else { continue };
            for inst in decode(&module, function).unwrap_or_default() {
                let state = frame.state(frame.row_at(inst.address));
                let Some(place) = return_place(state) else {
                    unknown += 1;
                    continue;
                };
                // The return address is never below the stack pointer.
                let is_on_stack = place.offset >= 0 && place.offset % 8 == 0;
                assert!(is_on_stack, "{:x}: {place:?}", inst.address);
                known += 1;
            }
        }
        assert!(known > 200_000 && unknown * 100 < known, "{known} known, {unknown} unknown");
    }
}
