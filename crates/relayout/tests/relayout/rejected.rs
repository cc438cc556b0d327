//! Functions that must not be moved.

use crate::support::{Nowhere, compile, source};
use dbdyno_relayout::{Module, Options, RejectReason, Samples, optimize};

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
