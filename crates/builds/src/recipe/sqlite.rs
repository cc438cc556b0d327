//! SQLite as a shared library, from the amalgamation: one source file, one object, one link.
//!
//! SQLite's own defaults stay visible: the only option is `SQLITE_THREADSAFE=1`, which is its
//! default too and is spelled out because the workers depend on it. Frame pointers and semantic
//! interposition are the compiler's choice.

use std::path::PathBuf;

use super::{BuildPlan, Flags, RecipeInput, Step, words};

pub(super) const VERSION: u32 = 2;

pub(super) const LIBRARY: &str = "libsqlite3.so";
const OBJECT: &str = "sqlite3.o";
const SOURCE: &str = "sqlite3.c";

pub(super) fn flags(compile: Vec<String>, link: Vec<String>) -> Flags {
    // With link-time optimization the link generates the code, so it gets the flags for compiling
    // too, and gcc writes down nothing unless it is told so there as well. Without, they change
    // nothing.
    let mut to_link = words(&["-shared", "-fPIC"]);
    to_link.extend(compile.iter().cloned());
    to_link.extend(link);
    // `-Bsymbolic` keeps the library's calls to itself inside: a process that has a second SQLite
    // (dbdyno itself has one) would otherwise answer them with that one. The soname is the same
    // for all variants on purpose: a name of another length shifts everything behind it, and the
    // layout of code alone can move a result by percents.
    to_link.extend([format!("-Wl,-soname,{LIBRARY}"), "-Wl,-Bsymbolic".to_owned()]);
    let mut to_compile = words(&["-fPIC", "-DSQLITE_THREADSAFE=1"]);
    to_compile.extend(compile);
    Flags { compile: to_compile, link: to_link }
}

/// Systems with an older C library have these apart from it; on others they are empty.
const LIBRARIES: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

pub(super) fn plan(order: &RecipeInput<'_>) -> BuildPlan {
    let source = order.source.join(SOURCE);
    let compiler = &order.compiler.path;
    let mut compile_args = order.flags.compile.clone();
    compile_args.extend(words(&["-c", &source.to_string_lossy(), "-o", OBJECT]));
    let mut link_args = order.flags.link.clone();
    link_args.extend(words(&[OBJECT, "-o", LIBRARY]));
    link_args.extend(words(&LIBRARIES));
    BuildPlan {
        steps: vec![
            Step::new(format!("compiling {SOURCE}"), compiler, compile_args),
            Step::new(format!("linking {LIBRARY}"), compiler, link_args),
        ],
        install: Vec::new(),
        pieces: Vec::new(),
        artifact: PathBuf::from(LIBRARY),
        has_compile_database: false,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::Path;

    use super::*;
    use crate::packaging::PackagingFlags;
    use crate::{Compiler, CompilerKind, System, Variant, recipe};

    fn commands(variant: &str, kind: CompilerKind, lto_linker: &[&str], extra: &[&str]) -> String {
        let variant = Variant::by_name(variant).unwrap();
        let none = PackagingFlags::default();
        let lto = words(lto_linker);
        let flags = recipe::flags(System::Sqlite, &variant, kind, &none, &lto, &words(extra));
        let compiler =
            Compiler { path: PathBuf::from("/usr/bin/cc"), ..recipe::testing::compiler(kind) };
        let plan = plan(&RecipeInput {
            system: System::Sqlite,
            version: "3.50.4",
            source: Path::new("/src"),
            tree: Path::new("/tree"),
            home: Path::new("/home"),
            staging: Path::new("/staging"),
            variant: &variant,
            flags: &flags,
            compiler: &compiler,
            options: &recipe::RecipeOptions::default(),
            jobs: NonZeroUsize::MIN,
        });
        plan.steps.iter().map(|step| step.to_shell() + "\n").collect()
    }

    #[test]
    fn compiles_and_links_in_two_steps() {
        assert_eq!(
            commands("rel_withdbg", CompilerKind::Gcc, &[], &[]),
            "/usr/bin/cc -fPIC -DSQLITE_THREADSAFE=1 -frecord-gcc-switches -O2 -g -DNDEBUG \
             -c /src/sqlite3.c -o sqlite3.o\n\
             /usr/bin/cc -shared -fPIC -frecord-gcc-switches -O2 -g -DNDEBUG \
             -Wl,-soname,libsqlite3.so -Wl,-Bsymbolic sqlite3.o -o libsqlite3.so -lpthread -ldl -lm\n"
        );
    }

    #[test]
    fn gives_the_variant_and_its_linker_to_the_link() {
        assert_eq!(
            commands("rel_native_lto", CompilerKind::Clang, &["-fuse-ld=lld"], &[]),
            "/usr/bin/cc -fPIC -DSQLITE_THREADSAFE=1 -frecord-command-line -O3 -march=native \
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
}
