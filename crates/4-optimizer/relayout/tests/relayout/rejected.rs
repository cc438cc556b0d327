//! Functions that must not be moved.

use std::process::Command;

use crate::support::{Nowhere, compile, source};
use dbdyno_relayout::{
    EntryPatch, LayoutError, Module, Options, RejectReason, Rejected, Relayout, Samples, optimize,
    verify,
};

/// A copy whose encrypted address is in a `jmp_buf` could never be freed.
#[test]
fn function_that_calls_setjmp_is_rejected_for_every_calling_sequence() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("shapes.so");
    let builds: [(&str, &[&str]); 5] = [
        ("gcc", &["-O2"]),
        ("gcc", &["-O2", "-fno-plt"]),
        ("gcc", &["-O0", "-fno-plt"]),
        ("clang", &["-O1", "-Wl,-z,now"]),
        ("clang", &["-O2", "-s"]),
    ];
    for (compiler, arguments) in builds {
        compile(compiler, &source("shapes.c"), arguments, &out);
        let module =
            Module::parse("shapes", &std::fs::read(&out).unwrap(), 0x7f00_0000_0000).unwrap();
        let start = |name: &str| {
            let mut functions = module.functions().iter();
            functions.find(|it| module.symbol_at(it.start) == Some(name)).unwrap().start
        };
        let (twice, once) = (start("case_setjmp"), start("case_loops"));
        let mut samples = Samples::default();
        samples.add_hit(twice, 5);
        samples.add_hit(once, 5);
        let options = Options { coverage: 1.0, ..Options::default() };
        let relayout = optimize(&[&module], &samples, &options, &mut Nowhere).unwrap();
        assert_eq!(relayout.statistics.rejected.get(&RejectReason::SavesContext), Some(&1));
        let moved = |start| relayout.symbols.iter().any(|symbol| symbol.original == start);
        assert!(moved(once) && !moved(twice), "{compiler} {arguments:?}");
    }
}

/// A copy may call the original of a function, but not an instruction that the jump to a copy overwrites.
#[test]
fn copy_that_continues_inside_overwritten_code_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("throws.so");
    compile("g++", &source("throws.cc"), &["-O2"], &out);
    let file = std::fs::read(&out).unwrap();
    let module = Module::parse("throws", &file, 0x7f00_0000_0000).unwrap();
    let mut samples = Samples::default();
    for function in module.functions() {
        samples.add_hit(function.start, 5);
    }
    let options = Options { coverage: 1.0, ..Options::default() };
    let mut relayout = optimize(&[&module], &samples, &options, &mut Nowhere).unwrap();
    let call_at = |address: u64| {
        let bytes = module.bytes(address, 5)?;
        let distance = i32::from_le_bytes(bytes[1..].try_into().unwrap());
        (bytes[0] == 0xe8).then(|| (address + 5).wrapping_add_signed(distance.into()))
    };
    let mut calls = relayout.map.pairs().filter_map(|(at, copy)| Some((copy, call_at(at)?)));
    let is_copied = |target: u64| relayout.map.to_copy(target).is_some();
    let (copy, target) = calls.find(|(_, target)| is_copied(*target)).unwrap();
    let region = relayout.regions.iter_mut().find(|it| it.range().contains(&copy)).unwrap();
    let at = (copy - region.address) as usize;
    assert_eq!(region.bytes[at], 0xe8);
    let distance = i32::try_from(target.wrapping_sub(copy + 5).cast_signed()).unwrap();
    region.bytes[at + 1..at + 5].copy_from_slice(&distance.to_le_bytes());
    verify(&[&module], &relayout).unwrap();

    let overwrites = EntryPatch { address: target - 1, ..relayout.entries[0].clone() };
    relayout.entries.push(overwrites);
    let refused = verify(&[&module], &relayout).unwrap_err();
    assert_eq!(refused.copy, copy, "{refused}");
}

/// A function that can be moved, as an assembler writes it.
const MOVABLE: &str = "
    .text
    .globl movable
    .type movable, @function
movable:
    .cfi_startproc
    movl %edi, %eax
    addl $1000, %eax
    addl $2000, %eax
    ret
    .cfi_endproc
    .size movable, . - movable
";

/// Links assembly language, to a shared library if no argument says otherwise.
fn assembled(text: &str, arguments: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (source, out) = (directory.path().join("a.s"), directory.path().join("a.out"));
    std::fs::write(&source, format!("{MOVABLE}{text}")).unwrap();
    let arguments = if arguments.contains(&"-static") {
        arguments
    } else {
        &[&["-shared"], arguments].concat()
    };
    let output = Command::new("gcc")
        .args(["-nostdlib", "-Wl,--hash-style=gnu", "-o"])
        .arg(&out)
        .args(arguments)
        .arg(&source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(out).unwrap()
}

/// A layout of all functions.
fn layout_of(file: &[u8], bias: u64) -> Result<Relayout, LayoutError> {
    let module = Module::parse("assembled", file, bias).unwrap();
    let mut samples = Samples::default();
    for function in module.functions() {
        samples.add_hit(function.start, 5);
    }
    let options = Options { coverage: 1.0, ..Options::default() };
    let relayout = optimize(&[&module], &samples, &options, &mut Nowhere)?;
    verify(&[&module], &relayout).unwrap();
    Ok(relayout)
}

/// Why functions were not moved, and how many. `movable` must be.
#[track_caller]
fn rejected(file: &[u8], bias: u64) -> Vec<(RejectReason, u64)> {
    let relayout = layout_of(file, bias).unwrap();
    let moved: Vec<_> = relayout.symbols.iter().map(|symbol| symbol.name.as_str()).collect();
    assert!(moved.contains(&"movable.relaid"), "{moved:?}");
    relayout.statistics.rejected.into_iter().collect()
}

const BIAS: u64 = 0x7f00_0000_0000;

/// A function with the label `1` inside the bytes to replace, and the data behind it.
fn entered_inside(rest: &str, data: &str) -> String {
    format!(
        "
        .type f, @function
    f:  .cfi_startproc
        movl %edi, %eax
        nop
    1:  addl $100, %eax
        {rest}
        .cfi_endproc
        .size f, . - f
        {data}
    "
    )
}

/// Older linkers put constants into the segment of the code.
#[test]
fn jump_tables_in_the_segment_of_the_code_are_read() {
    let relative = entered_inside(
        "
        leaq table(%rip), %rdx
        andl $1, %esi
        movslq (%rdx,%rsi,4), %rcx
        leaq (%rcx,%rdx), %rcx
        jmp *%rcx
    2:  ret",
        "
        .section .rodata
        .balign 4
    table: .long 1b - table, 2b - table",
    );
    let absolute = entered_inside(
        "
        andl $1, %esi
        jmp *table(,%rsi,8)
    2:  ret",
        "
        .section .rodata
        .balign 8
    table: .quad 1b, 2b",
    );
    for segments in ["-Wl,-z,separate-code", "-Wl,-z,noseparate-code"] {
        let expected = [(RejectReason::EntryAddressTaken, 1)];
        assert_eq!(rejected(&assembled(&relative, &[segments]), BIAS), expected, "{segments}");
        let fixed = assembled(&absolute, &[segments, "-static", "-no-pie", "-Wl,-e,movable"]);
        assert_eq!(rejected(&fixed, 0), expected, "{segments}");
    }
}

/// In a program at a fixed address.
#[test]
fn address_of_a_label_that_is_loaded_as_a_number_is_found() {
    let text = entered_inside(
        "
        movl $1b, %edx
        jmp *%rdx",
        "",
    );
    let fixed = assembled(&text, &["-static", "-no-pie", "-Wl,-e,movable"]);
    assert_eq!(rejected(&fixed, 0), [(RejectReason::EntryAddressTaken, 1)]);
}

/// As gcc before version 4.4 wrote it for all functions without an exception table in a file with one.
#[test]
fn function_with_a_null_pointer_to_an_exception_table_is_moved() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("throws.so");
    compile("g++", &source("throws.cc"), &["-O2", "-fno-dwarf2-cfi-asm"], &out);
    let relayout = layout_of(&std::fs::read(&out).unwrap(), BIAS).unwrap();
    let rejected = &relayout.statistics.rejected;
    assert!(!rejected.contains_key(&RejectReason::BadUnwindInfo), "{rejected:?}");
    assert!(relayout.symbols.iter().any(|symbol| symbol.name == "through.relaid"));
}

/// clang puts all landing pads of a function that it splits into one part, BOLT into the cold one.
#[test]
fn function_with_a_landing_pad_of_another_in_the_bytes_to_replace_is_rejected() {
    let text = "
        .type f, @function
    f:  .cfi_startproc
        .cfi_lsda 0x1b, table
        movl %edi, %eax
        addl $100, %eax
    1:  call *%rsi
    2:  ret
        .cfi_endproc
        .size f, . - f
        .type pads, @function
    pads:
        .cfi_startproc
        movl %eax, %edi
        nop
    3:  addl $100, %eax
        jmp 2b
        .cfi_endproc
        .size pads, . - pads
        .section .gcc_except_table, \"a\"
    table:
        .byte 0x1b
        .long pads - .
        .byte 0xff, 0x01
        .uleb128 5f - 4f
    4:  .uleb128 1b - f, 2b - 1b, 3b - pads, 0
    5:
    ";
    let found = rejected(&assembled(text, &[]), BIAS);
    assert_eq!(found, [(RejectReason::EntryBranchTarget, 1)]);
}

#[test]
fn all_functions_inside_another_are_rejected() {
    let inner = |name: &str| {
        format!(
            "{name}: .cfi_startproc
            movl %edi, %eax
            addl $100, %eax
            addl $200, %eax
            ret
            .cfi_endproc
        "
        )
    };
    let text = format!(
        "outer: movl %esi, %eax
            cmpl $7, %edi
            jne second + 2 + 3
        {} {}
        outer_end:
        .section .eh_frame, \"a\", @progbits
        1:  .long 3f - 2f
        2:  .long 0
            .byte 1
            .string \"zR\"
            .byte 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1
            .balign 8
        3:  .long 5f - 4f
        4:  .long 4b - 1b
            .long outer - ., outer_end - outer
            .byte 0
            .balign 8
        5:
        ",
        inner("first"),
        inner("second")
    );
    // GNU ld refuses to make an index of such descriptions.
    let file = assembled(&text, &["-Wl,--no-eh-frame-hdr"]);
    assert_eq!(rejected(&file, BIAS), [(RejectReason::Overlapping, 3)]);
}

/// The comparison directly before the conditional jump is not the only one that leads to it.
#[test]
fn jump_table_with_two_bounds_is_not_copied() {
    let dispatch = |before: &str| {
        format!(
            "
            .type f, @function
        f:  .cfi_startproc
            movl %edi, %eax
            addl $100, %esi
            {before}
            cmpl $1, %edi
        1:  ja 3f
            leaq table(%rip), %rdx
            movslq (%rdx,%rdi,4), %rcx
            addq %rdx, %rcx
            jmp *%rcx
        2:  addl $200, %eax
        3:  ret
            .cfi_endproc
            .size f, . - f
            .section .rodata
            .balign 4
        table: .long 2b - table, 3b - table, 2b - table
        "
        )
    };
    let copied = |before: &str| {
        let relayout = layout_of(&assembled(&dispatch(before), &[]), BIAS).unwrap();
        (relayout.statistics.jump_tables_seen, relayout.statistics.jump_tables_copied)
    };
    assert_eq!(copied(""), (1, 1));
    let other = "testl %esi, %esi; jne 5f; cmpl $2, %edi; jmp 1f; 5:";
    assert_eq!(copied(other), (1, 0));
}

/// Relocations, which contain addresses inside functions, are found by section headers.
#[test]
fn functions_of_files_without_section_headers_stay() {
    let text = entered_inside(
        "
        leaq table(%rip), %rdx
        jmp *(%rdx,%rsi,8)",
        "
        .section .data.rel.ro, \"aw\"
        .balign 8
    table: .quad 1b",
    );
    let mut file = assembled(&text, &[]);
    assert_eq!(rejected(&file, BIAS), [(RejectReason::EntryAddressTaken, 1)]);
    // e_shoff, e_shnum and e_shstrndx
    file[40..48].fill(0);
    file[60..64].fill(0);
    let found = layout_of(&file, BIAS).map(|relayout| relayout.entries);
    assert!(matches!(found, Err(LayoutError::NothingHot { .. })), "{found:?}");
}

#[test]
fn error_has_the_reasons_of_rejected_functions() {
    let reasons = vec![(RejectReason::NoUnwindInfo, 2, 30), (RejectReason::TooSmall, 1, 4)];
    let error = LayoutError::NothingHot { samples: 34, rejected: Rejected(reasons) };
    let expected = "none of the 34 samples is in a function that can be moved; functions that cannot be \
                    moved: 2 with 30 samples (no unwind info), 1 with 4 samples (too small)";
    assert_eq!(error.to_string(), expected);
}

/// A tracing tool replaces the first byte of a static probe by a breakpoint, also where a jump is.
#[test]
fn function_with_a_probe_in_the_bytes_to_replace_is_rejected() {
    let rejected_with = |before: &str, after: &str| {
        let text = format!(
            "
            .type f, @function
        f:  .cfi_startproc
            movl %edi, %eax
            {before}
        0:  nop
            {after}
            addl $100, %eax
            ret
            .cfi_endproc
            .size f, . - f
            .section .note.stapsdt, \"\", \"note\"
            .balign 4
            .4byte 8, 2f - 1f, 3
            .asciz \"stapsdt\"
        1:  .8byte 0b, 0, 0
            .asciz \"provider\", \"name\", \"\"
        2:  .balign 4
            "
        );
        rejected(&assembled(&text, &[]), BIAS)
    };
    let entry_probe = [(RejectReason::EntryProbe, 1)];
    assert_eq!(rejected_with("", "leal 5(%rax), %eax; nop"), entry_probe);
    assert_eq!(rejected_with("nop; nop; nop; nop", ""), entry_probe);
    assert_eq!(rejected_with("nop; nop; nop; nop; nop", ""), []);
}

/// Whether a function is rejected because it calls a function that uses its return address. `program` is C code after
/// a declaration of `dlsym`.
fn uses_return_address(program: &str, compiler: &str, arguments: &[&str]) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let (text, out) = (directory.path().join("a.c"), directory.path().join("a.so"));
    let movable = "int movable(int a, int b) { return a > b ? a * 3000 + b : b * 5000 - a; }";
    let program = format!("void *dlsym(void *, const char *);\n{program}\n{movable}\n");
    std::fs::write(&text, program).unwrap();
    compile(compiler, &text, arguments, &out);
    rejected(&std::fs::read(&out).unwrap(), BIAS).contains(&(RejectReason::ReturnAddressUsed, 1))
}

/// A wrapper that ends with a jump leaves its own return address to the function that looks at it.
#[test]
fn function_that_calls_a_wrapper_of_dlsym_is_rejected() {
    let program = "
        __attribute__((noinline)) static void *next(char *name) { return dlsym((void *)-1l, name); }
        void *case_wrapped(char *name) { return (char *)next(name) + (long)next(name + 1); }";
    for arguments in [&["-O2"][..], &["-O2", "-fno-plt"]] {
        assert!(uses_return_address(program, "gcc", arguments), "{arguments:?}");
    }
}

#[test]
fn function_that_loads_the_address_of_dlsym_is_rejected() {
    let program = "
        void *case_next(char *name) {
            return (char *)dlsym((void *)-1l, name) + (long)dlsym((void *)-1l, name + 1);
        }";
    assert!(uses_return_address(program, "clang", &["-O2", "-fno-plt"]));
}
