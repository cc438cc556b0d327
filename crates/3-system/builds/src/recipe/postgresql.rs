//! PostgreSQL: only the server and the programs that create its data directory.
//!
//! All optional features are disabled (readline, compression of backups, ICU, encryption), so that
//! a build has few dependencies and takes minutes. The locale provider is the C library's; dbdyno's
//! data directories have the locale C.

use std::path::Path;

use dbdyno_types::server::ServerSystem;

use super::{
    BuildPlan, ConfigureTool, Flags, Inputs, Prerequisite, Probe, Recipe, RecipeInput,
    compile_with_ninja, install_with, quoted, words,
};
use crate::command::{Counts, Step};

pub(super) static RECIPE: Recipe = Recipe {
    title: "PostgreSQL",
    server: Some(ServerSystem::PostgreSql),
    artifact: "server/bin/postgres",
    version,
    march_flags: &[],
    ignored_linker: None,
    adds_native: |_, _, _| false,
    flags: |compile, link| Flags { compile, link },
    plan,
    needs,
    packages: &[&["postgresql"]],
    programs: &["postgres"],
    helpers: &["initdb"],
};

fn version(folder: &Path) -> Result<String, String> {
    quoted(&folder.join("configure"), "PACKAGE_VERSION=")
        .ok_or_else(|| "it has no usable configure with PACKAGE_VERSION".to_owned())
}

/// The directories to make, in this order: first the server, then what is needed to create a data
/// directory. Their makefiles know their dependencies.
const DIRECTORIES: [&str; 7] = [
    "src/backend",
    "src/timezone",
    "src/backend/utils/mb/conversion_procs",
    "src/backend/snowball",
    "src/pl/plpgsql/src",
    "src/interfaces/libpq",
    "src/bin/initdb",
];

/// Disables a check of the client library for calls of `exit`, which the runtime library of gcc's
/// profiles contains. With coverage enabled, the makefiles skip this check.
const PROFILING: &str = "enable_coverage=yes";

fn plan(order: &RecipeInput<'_>) -> BuildPlan {
    let meson = order.inputs.options.tool == Some(ConfigureTool::Meson);
    let (steps, install) = if meson { by_meson(order) } else { by_autoconf(order) };
    BuildPlan { steps, install, pieces: Vec::new(), has_compile_database: meson }
}

fn by_autoconf(order: &RecipeInput<'_>) -> (Vec<Step>, Vec<Step>) {
    let compiler = order.inputs.compiler;
    let prefix = order.prefix();
    let mut args = vec![format!("--prefix={}", prefix.display())];
    // Debian's source takes modules, such as plpgsql.so, from the directory of its packages unless this name
    // contains `postgres`.
    args.push(format!("--libdir={}", prefix.join("lib/postgresql").display()));
    args.extend(["readline", "zlib", "icu"].map(|what| format!("--without-{what}")));
    if order.inputs.variant.assertions {
        args.push("--enable-cassert".to_owned());
    }
    args.push(format!("CC={}", compiler.path.display()));
    args.push(format!("CFLAGS={}", order.inputs.flags.compile.join(" ")));
    if !order.inputs.flags.link.is_empty() {
        args.push(format!("LDFLAGS={}", order.inputs.flags.link.join(" ")));
    }
    if let Some((ar, ranlib)) = order.archiver() {
        args.push(format!("AR={}", ar.display()));
        args.push(format!("RANLIB={}", ranlib.display()));
    }
    args.extend(order.inputs.options.arguments.iter().cloned());
    let mut steps = vec![Step::new("configuring PostgreSQL", order.source.join("configure"), args)];
    let jobs = format!("--jobs={}", order.jobs);
    // With several jobs, compilers might start before the headers that they read are generated:
    // only the top-level makefile, which makes too much, has these dependencies.
    if order.number() >= (11, 0) {
        let args = ["--print-directory", &jobs, "-C", "src/backend", "generated-headers"];
        steps.push(Step::new("generating headers", "make", words(&args)));
    }
    for directory in DIRECTORIES {
        // The output of each command is printed in one piece, with its directory.
        let mut args = vec!["--output-sync=target", "--print-directory", &jobs, "-C", directory];
        args.push("all");
        if order.inputs.flags.is_instrumented() {
            args.push(PROFILING);
        }
        steps.push(Step {
            counts: Counts::Make,
            ..Step::new(format!("compiling {directory}"), "make", words(&args))
        });
    }
    let destination = format!("DESTDIR={}", order.staging.display());
    let install = DIRECTORIES.map(|directory| {
        let mut args = vec!["--silent", "-C", directory, "install", &destination];
        if order.inputs.flags.is_instrumented() {
            args.push(PROFILING);
        }
        Step::new(format!("installing {directory}"), "make", words(&args))
    });
    (steps, install.into())
}

fn by_meson(order: &RecipeInput<'_>) -> (Vec<Step>, Vec<Step>) {
    let mut args = vec!["setup".to_owned(), "--buildtype=plain".to_owned()];
    args.push(format!("--prefix={}", order.prefix().display()));
    // Otherwise libraries are installed into a directory named after the architecture.
    args.push("--libdir=lib".to_owned());
    args.extend(["-Dauto_features=disabled", "-Drpath=true"].map(str::to_owned));
    args.push(format!("-Dcassert={}", order.inputs.variant.assertions));
    args.push(format!("-Dc_args={}", order.inputs.flags.compile.join(" ")));
    let mut link = order.inputs.flags.compile.clone();
    link.extend(order.inputs.flags.link.iter().cloned());
    args.push(format!("-Dc_link_args={}", link.join(" ")));
    args.extend(order.inputs.options.arguments.iter().cloned());
    args.extend([".".to_owned(), order.source.to_string_lossy().into_owned()]);
    let mut env =
        vec![("CC".to_owned(), order.inputs.compiler.path.to_string_lossy().into_owned())];
    if let Some((ar, _)) = order.archiver() {
        env.push(("AR".to_owned(), ar.to_string_lossy().into_owned()));
    }
    let setup = Step { env, ..Step::new("configuring PostgreSQL", "meson", args) };
    let install = install_with(order, "meson", &["install", "--no-rebuild", "--quiet"]);
    (vec![setup, compile_with_ninja(order, &[])], vec![install])
}

fn needs(inputs: &Inputs<'_>) -> Vec<Prerequisite> {
    let mut needs = vec![
        Prerequisite::program("bison", "bison"),
        Prerequisite::program("flex", "flex"),
        // Debian's minimal Perl, which is always installed, does not have them.
        Prerequisite {
            probe: Probe::PerlModules(&["FindBin", "File::Compare"]),
            package: "perl".to_owned(),
        },
    ];
    if inputs.options.tool == Some(ConfigureTool::Meson) {
        needs.push(Prerequisite::program("meson", "meson"));
        needs.push(Prerequisite::program("ninja", "ninja-build"));
        needs.push(Prerequisite::program("pkg-config", "pkg-config"));
    } else {
        needs.push(Prerequisite::program("make", "make"));
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecipeOptions;
    use crate::profile::Profiling;
    use crate::recipe::testing;
    use crate::{CompilerKind, System, Variant};

    fn commands(version: &str, variant: &str, options: &RecipeOptions) -> String {
        let variant = Variant::by_name(variant).unwrap();
        testing::commands(System::PostgreSql, version, &variant, CompilerKind::Gcc, options)
    }

    #[test]
    fn autoconf_plan_configures_compiles_and_installs() {
        let text = commands("15.18", "rel_lto", &RecipeOptions::default());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "/src/configure --prefix=/cache/builds/1f/server \
             --libdir=/cache/builds/1f/server/lib/postgresql --without-readline --without-zlib \
             --without-icu CC=/usr/bin/gcc-12 'CFLAGS=-frecord-gcc-switches -O3 -flto=auto \
             -DNDEBUG' AR=/usr/bin/gcc-ar-12 RANLIB=/usr/bin/gcc-ranlib-12"
        );
        assert_eq!(lines[1], "make --print-directory --jobs=4 -C src/backend generated-headers");
        assert_eq!(
            lines[2],
            "make --output-sync=target --print-directory --jobs=4 -C src/backend all"
        );
        assert_eq!(lines.len(), 2 + 7 + 7);
        assert_eq!(
            lines[15],
            "make --silent -C src/bin/initdb install DESTDIR=/cache/builds/1f.part/root"
        );
    }

    #[test]
    fn instrumented_build_enables_coverage_in_makefiles() {
        let variant = Variant::by_name("rel").unwrap();
        let collect = Profiling::Collect.flags(CompilerKind::Gcc);
        let (gcc, options) = (CompilerKind::Gcc, RecipeOptions::default());
        let text =
            testing::commands_with(System::PostgreSql, "15.18", &variant, gcc, &options, &collect);
        assert_eq!(text.matches(" enable_coverage=yes\n").count(), 2 * 7, "{text}");
        assert!(!commands("15.18", "rel", &options).contains("enable_coverage"));
    }

    #[test]
    fn meson_plan_is_used_on_request() {
        let options = RecipeOptions {
            tool: Some(ConfigureTool::Meson),
            arguments: vec!["-Dblocksize=8".to_owned()],
            ..RecipeOptions::default()
        };
        let text = commands("17.2", "rel_o2", &options);
        assert_eq!(
            text,
            "CC=/usr/bin/gcc-12 meson setup --buildtype=plain \
             --prefix=/cache/builds/1f/server --libdir=lib -Dauto_features=disabled \
             -Drpath=true -Dcassert=false '-Dc_args=-frecord-gcc-switches -O2 -DNDEBUG' \
             '-Dc_link_args=-frecord-gcc-switches -O2 -DNDEBUG' -Dblocksize=8 . /src\n\
             ninja -j4\n\
             DESTDIR=/cache/builds/1f.part/root meson install --no-rebuild --quiet\n"
        );
    }
}
