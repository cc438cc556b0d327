//! MySQL, and its forks with the same build system: Percona Server and Facebook's MySQL with
//! MyRocks.
//!
//! Since 8.0 only the server is compiled: the other half of the source is clients, plugins, the
//! router and their tests. The files that it reads are copied one by one, because cmake's install
//! target would require everything else. Forks with MyRocks and versions before 8.0 are installed as
//! a whole, as their documentation says.

use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_types::server::ServerSystem;

use super::{
    BuildPlan, COPYING, ExtraFiles, Flags, Inputs, Prerequisite, Recipe, RecipeInput,
    compile_with_ninja, configure_with_cmake, install_with, number_of, words,
};
use crate::RecipeOptions;
use crate::command::Step;

/// Prevents multiplications and additions from being fused, which changes results. MySQL's build
/// system adds it if the compiler fuses them, but its check does not see the instruction set of the
/// variant, which is in the flags of the build type.
const NO_FUSED_OPERATIONS: &str = "-ffp-contract=off";

/// MySQL's build system removes the flag for this linker from those for programs, with a warning.
const IGNORED_LINKER: &str = "gold";

pub(super) static RECIPE: Recipe = Recipe {
    title: "MySQL",
    server: Some(ServerSystem::MySql),
    artifact: "server/bin/mysqld",
    version,
    march_flags: &[NO_FUSED_OPERATIONS],
    ignored_linker: Some(IGNORED_LINKER),
    adds_native,
    flags: |compile, link| Flags { compile, link },
    plan,
    needs,
    packages: &[&["mysql-server-core", "mysql-server-core-8.0"]],
    programs: &["mysqld"],
    helpers: HELPERS,
};

/// Programs that the scripts which create a data directory call.
pub(super) const HELPERS: &[&str] = &["my_print_defaults", "resolveip"];

fn version(folder: &Path) -> Result<String, String> {
    let version = version_in(folder, &["MYSQL_VERSION", "VERSION"])?;
    if is_mariadb(folder) { Err("it is MariaDB's".to_owned()) } else { Ok(version) }
}

pub(super) fn is_mariadb(folder: &Path) -> bool {
    folder.join("storage/maria").is_dir()
}

/// The version in the first of these files that exists.
pub(super) fn version_in(folder: &Path, files: &[&str]) -> Result<String, String> {
    let text = files.iter().find_map(|name| fs::read_to_string(folder.join(name)).ok());
    text.and_then(|text| parse_version(&text))
        .ok_or_else(|| format!("it has no usable {}", files.join(" or ")))
}

/// Parses the version file of MySQL and MariaDB.
pub(super) fn parse_version(text: &str) -> Option<String> {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key))?;
        Some(line.trim_start().strip_prefix('=')?.trim().to_owned())
    };
    let number = |key: &str| value(key).filter(|value| value.parse::<u32>().is_ok());
    Some(format!(
        "{}.{}.{}{}",
        number("MYSQL_VERSION_MAJOR")?,
        number("MYSQL_VERSION_MINOR")?,
        number("MYSQL_VERSION_PATCH")?,
        value("MYSQL_VERSION_EXTRA").unwrap_or_default()
    ))
}

/// Libraries and components as in the published studies, without tests.
const SETTINGS: &[(&str, &str)] = &[
    ("WITH_SSL", "system"),
    ("WITH_ZLIB", "bundled"),
    ("MYSQL_MAINTAINER_MODE", "0"),
    ("ENABLED_LOCAL_INFILE", "1"),
    ("WITH_UNIT_TESTS", "OFF"),
    ("INSTALL_MYSQLTESTDIR", ""),
    // The distribution's flags, which the build system would add only to RelWithDebInfo. A variant
    // specifies itself whether to use them.
    ("WITH_PACKAGE_FLAGS", "OFF"),
    ("WITH_NUMA", "OFF"),
    ("WITH_SYSTEMD", "OFF"),
];

/// Settings for a server without the rest.
const SERVER_ONLY: &[(&str, &str)] = &[
    // The server loads the bundled libraries from a directory beside its own, not from the build
    // directory, which may be removed.
    ("CMAKE_BUILD_RPATH_USE_ORIGIN", "ON"),
    // The bundled library is compiled with -O3 in every build type, and reads its data from files of
    // the installation.
    ("WITH_ICU", "system"),
    // MySQL Cluster's storage engine is linked into the server by default.
    ("WITH_NDBCLUSTER_STORAGE_ENGINE", "OFF"),
    // Configured by default with libraries that only these parts need.
    ("WITH_CURL", "none"),
    ("WITH_GROUP_REPLICATION", "0"),
];

/// The directory of the bundled libraries (Abseil, Protocol Buffers), beside that of the programs.
const LIBRARIES: &str = "library_output_directory";

/// The targets of a server without the rest: the program, and its error messages.
const TARGETS: &[&str] = &["mysqld", "GenError"];

/// The first release with the router and the X Protocol, which are not measured.
const WITH_ROUTER: (u32, u32) = (8, 0);

/// The first release that includes the required parts of Boost.
const WITHOUT_BOOST: (u32, u32) = (8, 3);

/// The first release that requires a separate Boost.
const WITH_BOOST: (u32, u32) = (5, 7);

/// The first release of forks whose build system adds an instruction set to RocksDB's files.
const WITH_ENGINE_MARCH: (u32, u32) = (8, 0);

/// The CMake variable with that instruction set.
const ENGINE_MARCH: &str = "ROCKSDB_BUILD_ARCH";

/// The directory in the build directory that the source is copied to.
const COPY: &str = "source";

/// Whether the build system compiles RocksDB's files for the CPU of the machine, although no flag
/// says so. Some versions do not, and then the build only seems to depend on the machine.
fn adds_native(version: &str, options: &RecipeOptions, flags: &Flags) -> bool {
    let is_portable = |argument: &String| match argument.trim_start_matches("-D").split_once('=') {
        Some((ENGINE_MARCH, march)) => march != "native",
        Some(("ROCKSDB_DISABLE_MARCH_NATIVE", on)) => matches!(on, "1" | "ON"),
        _ => false,
    };
    options.myrocks
        && number_of(version) >= WITH_ENGINE_MARCH
        && flags.march().is_none()
        && !options.arguments.iter().any(is_portable)
}

/// The arguments for MyRocks. Facebook's MySQL has it without being asked.
fn with_myrocks(order: &RecipeInput<'_>) -> Vec<String> {
    let mut own = words(&["-DWITH_ROCKSDB=1", "-DWITH_LZ4=system", "-DWITH_ZSTD=system"]);
    if order.number() >= WITH_ENGINE_MARCH {
        // Without them, older instruction sets than that of the machine are refused.
        own.extend(words(&["-DALLOW_NO_SSE42=ON", "-DALLOW_NO_ARMV81A_CRYPTO=ON"]));
        // The instructions that RocksDB uses are chosen by the build system's instruction set, and
        // compiled with the flags of the variant, which come later.
        own.extend(order.inputs.flags.march().map(|march| format!("-D{ENGINE_MARCH}={march}")));
    }
    own
}

/// Copies the source into the build directory: forks with MyRocks write files into it.
fn copy_source(order: &RecipeInput<'_>) -> Step {
    let mut args = words(&["--archive", "--no-target-directory", "--reflink=auto"]);
    args.extend([order.source.to_string_lossy().into_owned(), COPY.to_owned()]);
    Step::new(COPYING, "cp", args)
}

/// Whether the server is compiled without the rest of the source.
fn is_server_only(number: (u32, u32), options: &RecipeOptions) -> bool {
    number >= WITH_ROUTER && !options.myrocks
}

fn plan(order: &RecipeInput<'_>) -> BuildPlan {
    if !order.inputs.options.myrocks {
        return plan_in(order);
    }
    let copy = order.tree.join(COPY);
    let mut plan = plan_in(&RecipeInput { source: &copy, ..*order });
    plan.steps.insert(0, copy_source(order));
    plan
}

fn plan_in(order: &RecipeInput<'_>) -> BuildPlan {
    let mut own: Vec<String> =
        SETTINGS.iter().map(|(name, value)| format!("-D{name}={value}")).collect();
    let number = order.number();
    let server_only = is_server_only(number, order.inputs.options);
    if number >= WITH_ROUTER {
        own.extend(["-DWITH_ROUTER=OFF", "-DWITH_MYSQLX=OFF"].map(str::to_owned));
    }
    if (WITH_BOOST..WITHOUT_BOOST).contains(&number) {
        // Its location in the archives "with Boost".
        own.push(format!("-DWITH_BOOST={}", order.source.join("boost").display()));
    }
    if number < WITH_BOOST {
        own.push("-DENABLE_DTRACE=OFF".to_owned());
    }
    if order.inputs.options.myrocks {
        own.extend(with_myrocks(order));
    }
    let (targets, install, pieces) = if server_only {
        own.extend(SERVER_ONLY.iter().map(|(name, value)| format!("-D{name}={value}")));
        (TARGETS, Vec::new(), pieces(order))
    } else {
        (&[][..], vec![install_with(order, "ninja", &["install"])], Vec::new())
    };
    BuildPlan {
        steps: vec![configure_with_cmake(order, own), compile_with_ninja(order, targets)],
        install,
        pieces,
        has_compile_database: true,
    }
}

fn pieces(order: &RecipeInput<'_>) -> Vec<ExtraFiles> {
    let (source, tree) = (order.source, order.tree);
    let piece =
        |from: PathBuf, to: &'static str, ending: &'static str| ExtraFiles { from, to, ending };
    vec![
        piece(tree.join("runtime_output_directory/mysqld"), "bin", ""),
        piece(tree.join(LIBRARIES), LIBRARIES, ""),
        piece(tree.join("share/english"), "share/english", "errmsg.sys"),
        piece(source.join("share/charsets"), "share/charsets", ".xml"),
    ]
}

fn needs(inputs: &Inputs<'_>) -> Vec<Prerequisite> {
    let Inputs { version, options, compiler, .. } = *inputs;
    let mut needs = vec![
        Prerequisite::program("cmake", "cmake"),
        Prerequisite::program("ninja", "ninja-build"),
        Prerequisite::program("bison", "bison"),
        Prerequisite::program("perl", "perl"),
        Prerequisite::program("pkg-config", "pkg-config"),
        Prerequisite::cxx(compiler),
        Prerequisite::header("openssl/ssl.h", "libssl-dev"),
        Prerequisite::header("curses.h", "libncurses-dev"),
        // Without it, InnoDB emulates asynchronous I/O with waiting threads, unlike packaged builds.
        Prerequisite::header("libaio.h", "libaio-dev"),
    ];
    if is_server_only(number_of(version), options) {
        needs.push(Prerequisite::header("unicode/uversion.h", "libicu-dev"));
    }
    // Those of group replication.
    if options.myrocks && !version.starts_with("5.") {
        needs.push(Prerequisite::program("rpcgen", "rpcsvc-proto"));
        needs.push(Prerequisite::header("tirpc/netconfig.h", "libtirpc-dev"));
    }
    if options.myrocks {
        needs.push(Prerequisite::header("lz4.h", "liblz4-dev"));
        needs.push(Prerequisite::header("zstd.h", "libzstd-dev"));
        needs.push(Prerequisite::header("snappy-c.h", "libsnappy-dev"));
    }
    // For Facebook's replication. Later releases require a separate one.
    if options.myrocks && number_of(version) < WITH_BOOST {
        needs.push(Prerequisite::header("boost/version.hpp", "libboost-dev"));
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::testing;
    use crate::{CompilerKind, System, Variant};

    /// The configure command and those after it.
    fn commands(
        version: &str,
        variant: &str,
        kind: CompilerKind,
        myrocks: bool,
    ) -> (String, String) {
        let variant = Variant::by_name(variant).unwrap();
        let options = RecipeOptions { myrocks, ..RecipeOptions::default() };
        let text = testing::commands(System::MySql, version, &variant, kind, &options);
        let text = match myrocks {
            true => text.strip_prefix(COPIED).unwrap(),
            false => text.as_str(),
        };
        let (configure, rest) = text.split_once('\n').unwrap();
        (configure.to_owned(), rest.to_owned())
    }

    const COPIED: &str = "cp --archive --no-target-directory --reflink=auto /src source\n";
    const SERVER: &str = "ninja -j4 mysqld GenError\n";
    const WHOLE: &str = "ninja -j4\nDESTDIR=/cache/builds/1f.part/root ninja install\n";

    #[test]
    fn only_the_server_is_configured_and_compiled() {
        let (configure, rest) = commands("9.7.2", "rel_o2_lto", CompilerKind::Gcc, false);
        assert_eq!(
            configure,
            "cmake -G Ninja -S /src -B . -DCMAKE_BUILD_TYPE=Release \
             -DCMAKE_INSTALL_PREFIX=/cache/builds/1f/server -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
             -DCMAKE_C_COMPILER=/usr/bin/gcc-12 -DCMAKE_CXX_COMPILER=/usr/bin/g++-12 \
             -DCMAKE_AR=/usr/bin/gcc-ar-12 -DCMAKE_RANLIB=/usr/bin/gcc-ranlib-12 \
             '-DCMAKE_C_FLAGS_RELEASE=-frecord-gcc-switches -O2 -flto=auto -DNDEBUG' \
             '-DCMAKE_CXX_FLAGS_RELEASE=-frecord-gcc-switches -O2 -flto=auto -DNDEBUG' \
             -DWITH_SSL=system -DWITH_ZLIB=bundled -DMYSQL_MAINTAINER_MODE=0 \
             -DENABLED_LOCAL_INFILE=1 -DWITH_UNIT_TESTS=OFF -DINSTALL_MYSQLTESTDIR= \
             -DWITH_PACKAGE_FLAGS=OFF -DWITH_NUMA=OFF -DWITH_SYSTEMD=OFF -DWITH_ROUTER=OFF \
             -DWITH_MYSQLX=OFF -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON -DWITH_ICU=system \
             -DWITH_NDBCLUSTER_STORAGE_ENGINE=OFF -DWITH_CURL=none -DWITH_GROUP_REPLICATION=0"
        );
        assert_eq!(rest, SERVER);
    }

    #[test]
    fn facebooks_mysql_is_installed_as_a_whole_with_myrocks() {
        let (text, rest) = commands("8.0.28", "rel_withdbg", CompilerKind::Clang, true);
        for word in [
            " -S /tree/source -B . ",
            "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
            "-DCMAKE_CXX_COMPILER=/usr/bin/clang++-19",
            "-DWITH_BOOST=/tree/source/boost",
            "-DWITH_ROCKSDB=1 -DWITH_LZ4=system -DWITH_ZSTD=system",
        ] {
            assert!(text.contains(word), "{word} is not in {text}");
        }
        assert_eq!(rest, WHOLE);
    }

    #[test]
    fn rocksdb_has_the_instruction_set_of_the_variant_if_it_names_one() {
        let march = |version, variant| {
            let (text, _) = commands(version, variant, CompilerKind::Gcc, true);
            text.split(' ').find(|word| word.contains(ENGINE_MARCH)).map(str::to_owned)
        };
        assert_eq!(march("8.0.32", "rel"), None);
        assert_eq!(march("8.0.32", "rel_native").unwrap(), "-DROCKSDB_BUILD_ARCH=native");
        assert_eq!(march("5.6.35", "rel_native"), None);
    }

    #[test]
    fn build_depends_on_the_machine_unless_another_instruction_set_is_named() {
        let native = |version: &str, flags: &[&str], argument: &str| {
            let options =
                RecipeOptions { myrocks: true, arguments: words(&[argument]), tool: None };
            let flags = Flags { compile: words(flags), link: Vec::new() };
            adds_native(version, &options, &flags)
        };
        assert!(native("8.0.32", &["-O3"], "-DWITH_BOOST=/opt/boost"));
        assert!(native("8.0.32", &["-O3"], "-DROCKSDB_BUILD_ARCH=native"));
        assert!(!native("8.0.32", &["-O3", "-march=x86-64-v3"], "-DX=1"));
        assert!(!native("8.0.32", &["-O3"], "-DROCKSDB_BUILD_ARCH=westmere"));
        assert!(!native("8.0.32", &["-O3"], "-DROCKSDB_DISABLE_MARCH_NATIVE=1"));
        assert!(!native("5.6.35", &["-O3"], "-DX=1"));
        let without = Flags { compile: words(&["-O3"]), link: Vec::new() };
        assert!(!adds_native("8.0.32", &RecipeOptions::default(), &without));
    }

    #[test]
    fn options_unknown_to_a_release_are_omitted() {
        let (old, rest) = commands("5.6.35", "rel", CompilerKind::Gcc, true);
        assert!(!old.contains("BOOST") && !old.contains("ROUTER"), "{old}");
        assert_eq!(rest, WHOLE);
        let (older, rest) = commands("8.0.31", "rel", CompilerKind::Gcc, false);
        assert!(older.contains("-DWITH_BOOST=/src/boost "), "{older}");
        assert_eq!(rest, SERVER);
        let (last, _) = commands("8.2.0", "rel", CompilerKind::Gcc, false);
        assert!(last.contains("-DWITH_BOOST=/src/boost "), "{last}");
        let (new, _) = commands("8.4.3", "rel", CompilerKind::Gcc, false);
        assert!(!new.contains("BOOST") && new.contains("WITH_ROUTER=OFF"), "{new}");
    }

    #[test]
    fn flags_of_packages_come_from_the_variant_alone() {
        let packaging = Flags {
            compile: vec!["-g".to_owned(), "-fstack-protector-strong".to_owned()],
            link: vec!["-Wl,-z,relro".to_owned()],
        };
        let variant = Variant::by_name("rel_withdbg").unwrap();
        let kind = CompilerKind::Gcc;
        let flags = crate::recipe::flags(System::MySql, &variant, kind, &packaging, &[], &[]);
        assert_eq!(
            flags.compile.join(" "),
            "-g -fstack-protector-strong -frecord-gcc-switches -O2 -g -DNDEBUG"
        );
        let (configure, _) = commands("9.7.2", "rel_withdbg", kind, false);
        assert!(configure.contains("-DWITH_PACKAGE_FLAGS=OFF"), "{configure}");
    }

    #[test]
    fn variants_with_instruction_set_do_not_fuse_operations() {
        let native = "-O3 -march=native -mtune=native -DNDEBUG -ffp-contract=off'";
        let (configure, _) = commands("9.7.2", "rel_native", CompilerKind::Clang, false);
        assert_eq!(configure.matches(native).count(), 2, "{configure}");
        let (configure, _) = commands("9.7.2", "rel", CompilerKind::Gcc, false);
        assert!(!configure.contains("contract"), "{configure}");
    }

    #[test]
    fn tools_of_group_replication_are_needed_for_the_whole_only() {
        let compiler = testing::compiler(CompilerKind::Gcc);
        let packages = |version: &str, myrocks| -> Vec<String> {
            let options = RecipeOptions { myrocks, ..RecipeOptions::default() };
            let (system, variant) = (System::MySql, &Variant::by_name("rel").unwrap());
            let flags = &Flags { compile: Vec::new(), link: Vec::new() };
            let (options, compiler) = (&options, &compiler);
            let inputs = Inputs { system, version, variant, flags, options, compiler };
            needs(&inputs).into_iter().map(|need| need.package).collect()
        };
        let server = packages("9.7.2", false);
        assert!(server.contains(&"bison".to_owned()) && server.contains(&"libssl-dev".to_owned()));
        assert!(!server.contains(&"libtirpc-dev".to_owned()), "{server:?}");
        for needed in ["libicu-dev", "libaio-dev"] {
            assert!(server.contains(&needed.to_owned()), "{server:?}");
        }
        let whole = packages("8.0.32", true);
        assert!(whole.contains(&"libtirpc-dev".to_owned()), "{whole:?}");
        assert!(whole.contains(&"libsnappy-dev".to_owned()), "{whole:?}");
    }
}
