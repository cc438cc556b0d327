//! Linkage stubs.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// The stubs in a section with these bytes at `start`: the address that each is called at, and the slot that it
/// jumps through.
pub(super) fn stubs_in(bytes: &[u8], start: u64) -> Vec<(u64, u64)> {
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut stubs = Vec::new();
    let mut first = None;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if let Some(slot) = jumped_through(&instruction) {
            stubs.push((instruction.ip(), slot));
            stubs.extend(first.map(|first| (first, slot)));
        }
        first = match may_precede_jump(&instruction) {
            true => first.or(Some(instruction.ip())),
            false => None,
        };
    }
    stubs
}

fn jumped_through(instruction: &Instruction) -> Option<u64> {
    let is_jump = instruction.mnemonic() == Mnemonic::Jmp
        && instruction.op0_kind() == OpKind::Memory
        && instruction.is_ip_rel_memory_operand();
    is_jump.then(|| instruction.ip_rel_memory_address())
}

/// Whether a stub may start with it: `endbr64`, and the number of the stub, which mold loads into `r11`.
fn may_precede_jump(instruction: &Instruction) -> bool {
    let loads_number = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op_kind(0) == OpKind::Register
        && instruction.op_register(0) == Register::R11D
        && instruction.op_kind(1) == OpKind::Immediate32;
    instruction.mnemonic() == Mnemonic::Endbr64 || loads_number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `jmp [rip+0x100]`.
    const JUMP: [u8; 6] = [0xff, 0x25, 0, 1, 0, 0];
    const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    /// `mov r11d, 5`.
    const NUMBER: [u8; 6] = [0x41, 0xbb, 5, 0, 0, 0];

    #[test]
    fn stubs_of_every_linker_are_found_at_their_first_instruction() {
        for before in [&[][..], &ENDBR, &NUMBER, &[&ENDBR[..], &NUMBER].concat()] {
            let bytes = [&[0xcc, 0xcc], before, &JUMP, &[0x68, 1, 0, 0, 0]].concat();
            let jump = 0x1002 + before.len() as u64;
            let found = stubs_in(&bytes, 0x1000);
            assert!(found.contains(&(0x1002, jump + 6 + 0x100)), "{before:x?}: {found:x?}");
            assert!(found.contains(&(jump, jump + 6 + 0x100)), "{before:x?}: {found:x?}");
        }
    }

    #[test]
    fn other_code_is_part_of_no_stub() {
        // push 1; jmp [rip+0x100]
        let found = stubs_in(&[&[0x68, 1, 0, 0, 0][..], &JUMP].concat(), 0x1000);
        assert_eq!(found, [(0x1005, 0x110b)]);
        // jmp to another stub.
        assert_eq!(stubs_in(&[0xe9, 0, 0, 0, 0], 0x1000), []);
    }
}
