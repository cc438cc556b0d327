//! Callers of functions, at each instruction that a program executes.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dbdyno_relayout::{
    Branch, BranchCount, Caller, Module, Options, Samples, StackTop, optimize, verify,
};
use tempfile::TempDir;

use crate::support::{Nowhere, source};

/// Size of the recorded part of the stack in bytes.
const STACK: usize = 512;

/// A traced process, before its next instruction.
struct Traced {
    pid: libc::pid_t,
    memory: File,
}

impl Traced {
    /// Starts a program and stops it before its first instruction.
    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        // SAFETY: a system call between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        let pid = command.spawn().unwrap().id().cast_signed();
        let mut traced = None;
        if wait(pid) {
            let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
            traced = Some(Self { pid, memory });
        }
        traced.expect("the program starts")
    }

    fn registers(&self) -> libc::user_regs_struct {
        // SAFETY: plain numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let to: *mut libc::user_regs_struct = &mut registers;
        // SAFETY: the registers of a stopped child are written to a struct of their type.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, to) }, 0);
        registers
    }

    /// Executes an instruction. Returns false when the program has exited.
    fn step(&self) -> bool {
        // SAFETY: the child is stopped.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0) }, 0);
        wait(self.pid)
    }

    fn stack(&self, at: u64) -> Vec<u8> {
        let mut content = vec![0; STACK];
        let size = self.memory.read_at(&mut content, at).unwrap();
        content.truncate(size);
        content
    }
}

/// Waits for a child. Returns whether it has stopped; otherwise it exited successfully.
fn wait(pid: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: waits for an own child.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert!(libc::WIFSTOPPED(status) || status == 0, "{status:x}");
    libc::WIFSTOPPED(status)
}

/// A call that has not returned.
struct Call {
    /// Address of its return address.
    slot: u64,
    return_address: u64,
}

/// Compiles the program.
fn program(compiler: &str, flags: &[&str]) -> (TempDir, PathBuf, Module) {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("steps");
    let status = Command::new(compiler)
        .args(["-nostdlib", "-static", "-no-pie", "-fno-stack-protector", "-w"])
        .args(flags)
        .arg("-o")
        .args([&out, &source("steps.c")])
        .status();
    let status = status.unwrap_or_else(|error| {
        panic!("{compiler}: {error}; install the Debian packages gcc and clang")
    });
    assert!(status.success());
    let module = Module::parse("steps", &std::fs::read(&out).unwrap(), 0).unwrap();
    (directory, out, module)
}

#[track_caller]
fn check(compiler: &str, flags: &[&str]) {
    let (_directory, out, module) = program(compiler, flags);
    let traced = Traced::start(&out);
    let (mut calls, mut instructions) = (Vec::<Call>::new(), HashMap::new());
    loop {
        let before = traced.registers();
        let content = traced.stack(before.rsp);
        let function = module.function_at(before.rip);
        if let (Some(call), Some(function)) = (calls.last(), function) {
            let top = StackTop {
                instruction: before.rip,
                stack_pointer: before.rsp,
                frame_pointer: before.rbp,
                content: &content,
            };
            let mut samples = Samples::default();
            samples.add_stack(&top, |at| module.is_executable(at));
            let function = function.start;
            let caller = Caller { function, return_address: Some(call.return_address) };
            let name = module.name_at(function);
            let found = samples.callers(&[&module]);
            assert_eq!(found, HashMap::from([(caller, 1)]), "{name}: {:#x} {flags:?}", before.rip);
            *instructions.entry(before.rip).or_insert(0) += 1;
        }
        if !traced.step() {
            break;
        }
        let after = traced.registers();
        calls.retain(|call| call.slot >= after.rsp);
        let pushed = traced.stack(after.rsp);
        let return_address = u64::from_le_bytes(pushed[..8].try_into().unwrap());
        let follows = (1..16).contains(&return_address.wrapping_sub(before.rip));
        if after.rsp + 8 == before.rsp && follows && after.rip != return_address {
            calls.push(Call { slot: after.rsp, return_address });
        }
    }
    assert!(instructions.len() > 100, "{}", instructions.len());
}

#[test]
fn caller_is_right_at_each_instruction_of_functions_without_frame_pointers() {
    check("gcc", &["-O2"]);
    check("gcc", &["-Os"]);
    check("clang", &["-O2"]);
}

#[test]
fn caller_is_right_at_each_instruction_of_functions_with_frame_pointers() {
    check("gcc", &["-O2", "-fno-omit-frame-pointer"]);
    check("gcc", &["-O0"]);
    check("clang", &["-O1", "-fno-omit-frame-pointer"]);
}

/// The function whose copy is after that of another one.
fn next(module: &Module, samples: &Samples, options: &Options, name: &str) -> String {
    let relayout = optimize(&[module], samples, options, &mut Nowhere).unwrap();
    verify(&[module], &relayout).unwrap();
    let names: Vec<&str> =
        relayout.symbols.iter().filter_map(|it| it.name.strip_suffix(".relaid")).collect();
    let place = names.iter().position(|it| *it == name).unwrap();
    names.get(place + 1).unwrap_or(&"").to_string()
}

#[test]
fn function_follows_the_caller_that_most_samples_have() {
    let (_directory, _, module) = program("gcc", &["-O2"]);
    let function = |name| {
        let mut functions = module.functions().iter();
        functions.find(|function| module.symbol_at(function.start) == Some(name)).unwrap()
    };
    let mut samples = Samples::default();
    for function in module.functions() {
        for at in function.range() {
            samples.add_hit(at, 1);
        }
    }
    let called = function("by_pointer");
    samples.add_hit(called.start, 10_000);
    let options = Options { sampled_callers: true, coverage: 1.0, ..Options::default() };
    // `call *%rax`
    let is_indirect_call = |at: u64| module.bytes(at, 2) == Some(&[0xff, 0xd0]);
    let callers = ["saves_registers", "returns_early", "variable_frame"];
    for caller in callers {
        for other in callers {
            let mut stacks = samples.clone();
            let mut branches = samples.clone();
            for (name, count) in [(caller, 3), (other, 1)] {
                for at in function(name).range().filter(|at| is_indirect_call(*at)) {
                    let caller = Caller { function: called.start, return_address: Some(at + 2) };
                    stacks.add_caller(caller, count);
                    let taken = BranchCount { taken: count, mispredicted: 0 };
                    branches.add_branch(Branch { from: at, to: called.start }, taken);
                }
            }
            assert_eq!(next(&module, &stacks, &options, caller), "by_pointer");
            assert_eq!(next(&module, &branches, &options, caller), "by_pointer");
        }
    }
    // It returns to a function that called the one that jumped to it.
    let mut stacks = samples.clone();
    // Only ends of calls count.
    for at in function("run").range() {
        stacks.add_caller(Caller { function: called.start, return_address: Some(at) }, 1);
    }
    assert_eq!(next(&module, &stacks, &options, "tail"), "by_pointer");
    let mut stacks = samples.clone();
    for at in function("returns_early").range() {
        stacks.add_caller(Caller { function: called.start, return_address: Some(at) }, 1);
    }
    let direct = Options { sampled_callers: false, ..options.clone() };
    assert_ne!(next(&module, &stacks, &direct, "returns_early"), "by_pointer");
    // Most calls are from elsewhere: then an edge has less weight, but is still the only one.
    stacks.add_caller(Caller { function: called.start, return_address: None }, 100);
    assert_eq!(next(&module, &stacks, &options, "returns_early"), "by_pointer");
    // The callers are in the profile for other processes.
    let (again, _) = stacks.to_profile(&[&module]).to_samples(&[&module]);
    assert_eq!(again.callers(&[&module]), stacks.callers(&[&module]));
    assert_eq!(next(&module, &again, &options, "returns_early"), "by_pointer");
}
