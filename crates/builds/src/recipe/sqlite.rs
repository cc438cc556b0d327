//! SQLite as a shared library, from the amalgamation: one source file, one object, one link.
//!
//! SQLite's own defaults stay visible: the only option is `SQLITE_THREADSAFE=1`, which is its
//! default too and is spelled out because the workers depend on it. Frame pointers and semantic
//! interposition are the compiler's choice.

use std::path::{Path, PathBuf};

use super::{Flags, Plan, Step, only_for_the_link};
use crate::{CompilerKind, Variant};

pub(super) const VERSION: u32 = 1;

pub(super) const LIBRARY: &str = "libsqlite3.so";
const OBJECT: &str = "sqlite3.o";
const SOURCE: &str = "sqlite3.c";

pub(super) fn flags(
    variant: &Variant,
    compiler: CompilerKind,
    lto_linker: &[String],
    extra: &[String],
) -> Flags {
    let owned = |flag: &&str| (*flag).to_owned();
    // The compiler writes down what it was told, in a section that is not loaded at run time:
    // the flag audit reads it from the finished library.
    let record = match compiler {
        CompilerKind::Gcc => "-frecord-gcc-switches",
        CompilerKind::Clang => "-frecord-command-line",
    };
    let mut compile: Vec<String> =
        ["-fPIC", record, "-DSQLITE_THREADSAFE=1"].iter().map(owned).collect();
    compile.extend(variant.flags().iter().map(owned));
    compile.extend(extra.iter().filter(|flag| !only_for_the_link(flag)).cloned());

    // With link-time optimization the link generates the code, so it gets the variant's flags
    // too, and gcc writes down nothing unless it is told so there as well. Without, they change
    // nothing.
    let mut link: Vec<String> = ["-shared", "-fPIC", record].iter().map(owned).collect();
    link.extend(variant.flags().iter().map(owned));
    link.extend(lto_linker.iter().cloned());
    link.extend(extra.iter().cloned());
    // `-Bsymbolic` keeps the library's calls to itself inside: a process that has a second SQLite
    // (dbdyno itself has one) would otherwise answer them with that one. The soname is the same
    // for all variants on purpose: a name of another length shifts everything behind it, and the
    // layout of code alone can move a result by percents.
    link.extend([format!("-Wl,-soname,{LIBRARY}"), "-Wl,-Bsymbolic".to_owned()]);
    Flags { compile, link }
}

/// Systems with an older C library have these apart from it; on others they are empty.
const LIBRARIES: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

pub(super) fn plan(source_dir: &Path, compiler: &Path, flags: &Flags) -> Plan {
    let source = source_dir.join(SOURCE);
    let mut compile_args = flags.compile.clone();
    compile_args.extend(words(&["-c", &source.to_string_lossy(), "-o", OBJECT]));
    let mut link_args = flags.link.clone();
    link_args.extend(words(&[OBJECT, "-o", LIBRARY]));
    link_args.extend(words(&LIBRARIES));
    Plan {
        steps: vec![
            Step {
                name: format!("compiling {SOURCE}"),
                program: compiler.to_owned(),
                args: compile_args,
                inputs: vec![source],
                output: PathBuf::from(OBJECT),
            },
            Step {
                name: format!("linking {LIBRARY}"),
                program: compiler.to_owned(),
                args: link_args,
                inputs: vec![PathBuf::from(OBJECT)],
                output: PathBuf::from(LIBRARY),
            },
        ],
        artifact: PathBuf::from(LIBRARY),
        scratch: vec![PathBuf::from(OBJECT)],
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(variant: &str, kind: CompilerKind, lto_linker: &[&str], extra: &[&str]) -> String {
        let variant = Variant::by_name(variant).unwrap();
        let flags = flags(variant, kind, &words(lto_linker), &words(extra));
        let plan = plan(Path::new("/src"), Path::new("/usr/bin/cc"), &flags);
        plan.steps.iter().map(|step| step.to_shell() + "\n").collect()
    }

    #[test]
    fn compiles_and_links_in_two_steps() {
        assert_eq!(
            commands("rel_withdbg", CompilerKind::Gcc, &[], &[]),
            "/usr/bin/cc -fPIC -frecord-gcc-switches -DSQLITE_THREADSAFE=1 -O2 -g -DNDEBUG \
             -c /src/sqlite3.c -o sqlite3.o\n\
             /usr/bin/cc -shared -fPIC -frecord-gcc-switches -O2 -g -DNDEBUG \
             -Wl,-soname,libsqlite3.so -Wl,-Bsymbolic sqlite3.o -o libsqlite3.so -lpthread -ldl -lm\n"
        );
    }

    #[test]
    fn gives_the_variant_and_its_linker_to_the_link() {
        assert_eq!(
            commands("rel_native_lto", CompilerKind::Clang, &["-fuse-ld=lld"], &[]),
            "/usr/bin/cc -fPIC -frecord-command-line -DSQLITE_THREADSAFE=1 -O3 -march=native \
             -mtune=native -flto -DNDEBUG -c /src/sqlite3.c -o sqlite3.o\n\
             /usr/bin/cc -shared -fPIC -frecord-command-line -O3 -march=native -mtune=native \
             -flto -DNDEBUG -fuse-ld=lld -Wl,-soname,libsqlite3.so -Wl,-Bsymbolic sqlite3.o -o libsqlite3.so \
             -lpthread -ldl -lm\n"
        );
    }

    #[test]
    fn extra_flags_come_last_and_the_linkers_only_at_the_link() {
        let text = commands("o0", CompilerKind::Gcc, &[], &["-O1", "-Wl,-z,now"]);
        assert!(text.contains("-O0 -DNDEBUG -O1 -c"), "{text}");
        assert!(text.contains("-O0 -DNDEBUG -O1 -Wl,-z,now -Wl,-soname"), "{text}");
    }

    #[test]
    fn names_the_files_of_each_step() {
        let flags = Flags { compile: Vec::new(), link: Vec::new() };
        let plan = plan(Path::new("/src"), Path::new("cc"), &flags);
        assert_eq!(plan.steps[0].inputs, [PathBuf::from("/src/sqlite3.c")]);
        assert_eq!(plan.steps[0].output, plan.steps[1].inputs[0]);
        assert_eq!(plan.steps[1].output, plan.artifact);
        assert_eq!(plan.scratch, [plan.steps[0].output.clone()]);
    }
}
