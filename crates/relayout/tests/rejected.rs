//! Functions that have to stay where they are.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod support;

use dbdyno_relayout::{Module, Options, RejectReason, Samples, optimize};
use support::{Nowhere, compile, source};

/// A copy whose address is in a `jmp_buf`, in disguise, could never be taken away.
#[test]
fn a_function_that_can_return_twice_is_left_alone_however_it_is_called() {
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
