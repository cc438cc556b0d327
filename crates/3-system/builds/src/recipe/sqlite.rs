//! SQLite as a shared library, from the amalgamation: one source file, one object, one link.
//!
//! SQLite's defaults are kept. The only option, `SQLITE_THREADSAFE=1`, is also its default; it is
//! set explicitly because the workers depend on it. Frame pointers and semantic interposition are
//! the compiler's defaults.

use std::path::Path;

use super::{BuildPlan, Flags, Recipe, RecipeInput, quoted, words};
use crate::command::Step;

const LIBRARY: &str = "libsqlite3.so";
const OBJECT: &str = "sqlite3.o";
const SOURCE: &str = "sqlite3.c";

pub(super) static RECIPE: Recipe = Recipe {
    title: "SQLite",
    server: None,
    artifact: LIBRARY,
    version,
    march_flags: &[],
    ignored_linker: None,
    adds_native: |_, _, _| false,
    flags,
    plan,
    needs: |_| Vec::new(),
    packages: &[],
    programs: &[],
    helpers: &[],
};

fn version(folder: &Path) -> Result<String, String> {
    // The file that is compiled.
    quoted(&folder.join(SOURCE), "#define SQLITE_VERSION ").ok_or_else(|| {
        "it has no usable sqlite3.c (the amalgamation, not the files that it is made of)".to_owned()
    })
}

fn flags(compile: Vec<String>, link: Vec<String>) -> Flags {
    // With link-time optimization the linker generates the code and needs the compiler flags, and
    // gcc records flags only if requested at the link as well. Without it, these flags have no
    // effect on the link.
    let mut to_link = words(&["-shared", "-fPIC"]);
    to_link.extend(compile.iter().cloned());
    to_link.extend(link);
    // `-Bsymbolic` binds the library's internal calls to the library itself. Otherwise, in a
    // process with a second SQLite (such as dbdyno's own), they would be bound to that one. The
    // soname is the same for all variants: a name of different length would move everything after
    // it, and code layout alone can change a result by several percent.
    to_link.extend([format!("-Wl,-soname,{LIBRARY}"), "-Wl,-Bsymbolic".to_owned()]);
    let mut to_compile = words(&["-fPIC", "-DSQLITE_THREADSAFE=1"]);
    to_compile.extend(compile);
    Flags { compile: to_compile, link: to_link }
}

/// Separate libraries on systems with an older C library; empty on others.
const LIBRARIES: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

fn plan(order: &RecipeInput<'_>) -> BuildPlan {
    let source = order.source.join(SOURCE);
    let compiler = &order.inputs.compiler.path;
    let mut compile_args = order.inputs.flags.compile.clone();
    compile_args.extend(words(&["-c", &source.to_string_lossy(), "-o", OBJECT]));
    let mut link_args = order.inputs.flags.link.clone();
    link_args.extend(words(&[OBJECT, "-o", LIBRARY]));
    link_args.extend(words(&LIBRARIES));
    BuildPlan {
        steps: vec![
            Step::new(format!("compiling {SOURCE}"), compiler, compile_args),
            Step::new(format!("linking {LIBRARY}"), compiler, link_args),
        ],
        ..BuildPlan::default()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::recipe::Inputs;
    use crate::{Compiler, CompilerKind, RecipeOptions, System, Variant, recipe};

    fn commands(variant: &str, kind: CompilerKind, lto_linker: &[&str], extra: &[&str]) -> String {
        let variant = Variant::by_name(variant).unwrap();
        let none = Flags::default();
        let lto = words(lto_linker);
        let flags = recipe::flags(System::Sqlite, &variant, kind, &none, &lto, &words(extra));
        let compiler =
            Compiler { path: PathBuf::from("/usr/bin/cc"), ..recipe::testing::compiler(kind) };
        let plan = plan(&RecipeInput {
            inputs: Inputs {
                system: System::Sqlite,
                version: "3.50.4",
                variant: &variant,
                flags: &flags,
                options: &RecipeOptions::default(),
                compiler: &compiler,
            },
            source: Path::new("/src"),
            tree: Path::new("/tree"),
            home: Path::new("/home"),
            staging: Path::new("/staging"),
            jobs: NonZeroUsize::MIN,
        });
        plan.steps.iter().map(|step| step.to_shell() + "\n").collect()
    }

    #[test]
    fn library_is_compiled_and_linked_in_two_steps() {
        assert_eq!(
            commands("rel_withdbg", CompilerKind::Gcc, &[], &[]),
            "/usr/bin/cc -fPIC -DSQLITE_THREADSAFE=1 -frecord-gcc-switches -O2 -g -DNDEBUG \
             -c /src/sqlite3.c -o sqlite3.o\n\
             /usr/bin/cc -shared -fPIC -frecord-gcc-switches -O2 -g -DNDEBUG \
             -Wl,-soname,libsqlite3.so -Wl,-Bsymbolic sqlite3.o -o libsqlite3.so -lpthread -ldl -lm\n"
        );
    }

    #[test]
    fn link_step_has_compiler_flags_and_lto_linker() {
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
    fn extra_flags_come_last_and_linker_flags_only_at_link() {
        let text = commands("o0", CompilerKind::Gcc, &[], &["-O1", "-Wl,-z,now"]);
        assert!(text.contains("-O0 -DNDEBUG -O1 -c"), "{text}");
        assert!(text.contains("-O0 -DNDEBUG -O1 -Wl,-z,now -Wl,-soname"), "{text}");
    }
}
