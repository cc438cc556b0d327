//! MySQL, and its forks with the same build system: Percona Server and Facebook's MySQL with
//! MyRocks.
//!
//! Source: their documentation and the command lines of the published studies.

use std::path::PathBuf;

use super::{BuildPlan, Prerequisite, RecipeInput, RecipeOptions, Step, cmake};
use crate::Compiler;

pub(super) const VERSION: u32 = 1;

pub(super) const PROGRAM: &str = "server/bin/mysqld";

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

/// The first release with the router and the X Protocol, which are not measured.
const WITH_ROUTER: (u32, u32) = (8, 0);

/// The first release that includes the required parts of Boost.
const WITHOUT_BOOST: (u32, u32) = (8, 1);

/// The first release that requires a separate Boost.
const WITH_BOOST: (u32, u32) = (5, 7);

pub(super) fn plan(order: &RecipeInput<'_>) -> BuildPlan {
    let mut own: Vec<String> =
        SETTINGS.iter().map(|(name, value)| format!("-D{name}={value}")).collect();
    let number = order.number();
    if number >= WITH_ROUTER {
        own.extend(["-DWITH_ROUTER=OFF", "-DWITH_MYSQLX=OFF"].map(str::to_owned));
    }
    if (WITH_BOOST..WITHOUT_BOOST).contains(&number) {
        // Its location in the archives "with Boost".
        own.push(format!("-DWITH_BOOST={}", order.source.join("boost").display()));
    }
    if order.options.myrocks {
        own.extend(
            ["-DWITH_ROCKSDB=1", "-DWITH_LZ4=system", "-DWITH_ZSTD=system"].map(str::to_owned),
        );
    }
    let install = Step {
        env: vec![("DESTDIR".to_owned(), order.staging.to_string_lossy().into_owned())],
        ..Step::new("installing MySQL", "ninja", vec!["install".to_owned()])
    };
    BuildPlan {
        steps: vec![cmake::configure(order, own), cmake::compile(order, &[])],
        install: vec![install],
        pieces: Vec::new(),
        artifact: PathBuf::from(PROGRAM),
        has_compile_database: true,
    }
}

pub(super) fn needs(
    version: &str,
    options: &RecipeOptions,
    compiler: &Compiler,
) -> Vec<Prerequisite> {
    let mut needs = vec![
        Prerequisite::program("cmake", "cmake"),
        Prerequisite::program("ninja", "ninja-build"),
        Prerequisite::program("bison", "bison"),
        Prerequisite::program("perl", "perl"),
        Prerequisite::program("pkg-config", "pkg-config"),
        Prerequisite::cxx(compiler),
        Prerequisite::header("openssl/ssl.h", "libssl-dev"),
        Prerequisite::header("curses.h", "libncurses-dev"),
    ];
    if !version.starts_with("5.") {
        needs.push(Prerequisite::program("rpcgen", "rpcsvc-proto"));
        needs.push(Prerequisite::header("tirpc/netconfig.h", "libtirpc-dev"));
    }
    if options.myrocks {
        needs.push(Prerequisite::header("lz4.h", "liblz4-dev"));
        needs.push(Prerequisite::header("zstd.h", "libzstd-dev"));
        needs.push(Prerequisite::header("snappy-c.h", "libsnappy-dev"));
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::testing;
    use crate::{CompilerKind, System, Variant};

    fn configure(version: &str, variant: &str, kind: CompilerKind, myrocks: bool) -> String {
        let variant = Variant::by_name(variant).unwrap();
        let options = RecipeOptions { myrocks, ..RecipeOptions::default() };
        let text = testing::commands(System::MySql, version, &variant, kind, &options);
        let (configure, rest) = text.split_once('\n').unwrap();
        assert_eq!(rest, "ninja -j4\nDESTDIR=/cache/builds/1f.part/root ninja install\n");
        configure.to_owned()
    }

    #[test]
    fn release_of_published_study_is_configured() {
        assert_eq!(
            configure("8.0.31", "rel_o2_lto", CompilerKind::Gcc, false),
            "cmake -G Ninja -S /src -B . -DCMAKE_BUILD_TYPE=Release \
             -DCMAKE_INSTALL_PREFIX=/cache/builds/1f/server -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
             -DCMAKE_C_COMPILER=/usr/bin/gcc-12 -DCMAKE_CXX_COMPILER=/usr/bin/g++-12 \
             -DCMAKE_AR=/usr/bin/gcc-ar-12 -DCMAKE_RANLIB=/usr/bin/gcc-ranlib-12 \
             '-DCMAKE_C_FLAGS_RELEASE=-frecord-gcc-switches -O2 -flto=auto -DNDEBUG' \
             '-DCMAKE_CXX_FLAGS_RELEASE=-frecord-gcc-switches -O2 -flto=auto -DNDEBUG' \
             -DWITH_SSL=system -DWITH_ZLIB=bundled -DMYSQL_MAINTAINER_MODE=0 \
             -DENABLED_LOCAL_INFILE=1 -DWITH_UNIT_TESTS=OFF -DINSTALL_MYSQLTESTDIR= \
             -DWITH_PACKAGE_FLAGS=OFF -DWITH_NUMA=OFF -DWITH_SYSTEMD=OFF -DWITH_ROUTER=OFF \
             -DWITH_MYSQLX=OFF -DWITH_BOOST=/src/boost"
        );
    }

    #[test]
    fn facebooks_mysql_is_configured_with_myrocks() {
        let text = configure("8.0.28", "rel_withdbg", CompilerKind::Clang, true);
        for word in [
            "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
            "-DCMAKE_CXX_COMPILER=/usr/bin/clang++-19",
            "-DWITH_ROCKSDB=1 -DWITH_LZ4=system -DWITH_ZSTD=system",
        ] {
            assert!(text.contains(word), "{word} is not in {text}");
        }
    }

    #[test]
    fn options_unknown_to_a_release_are_omitted() {
        let old = configure("5.6.35", "rel", CompilerKind::Gcc, true);
        assert!(!old.contains("BOOST") && !old.contains("ROUTER"), "{old}");
        let new = configure("8.4.3", "rel", CompilerKind::Gcc, false);
        assert!(!new.contains("BOOST") && new.contains("WITH_ROUTER=OFF"), "{new}");
    }
}
