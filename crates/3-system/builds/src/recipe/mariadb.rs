//! MariaDB: the server with InnoDB, optionally with MyRocks.
//!
//! All other plugins, tests, clients and the embedded server are disabled. The files that are
//! needed to create a data directory are copied one by one, because cmake's install target would
//! require compiling everything else.

use std::path::{Path, PathBuf};

use dbdyno_types::build::Hardening;
use dbdyno_types::server::ServerSystem;

use super::{
    BuildPlan, ExtraFiles, Flags, Inputs, Prerequisite, Recipe, RecipeInput, compile_with_ninja,
    configure_with_cmake, mysql,
};

pub(super) static RECIPE: Recipe = Recipe {
    title: "MariaDB",
    server: Some(ServerSystem::MariaDb),
    artifact: "server/bin/mariadbd",
    version,
    march_flags: &[],
    ignored_linker: None,
    adds_native: |_, _, _| false,
    flags: |compile, link| Flags { compile, link },
    plan,
    needs,
    packages: &[
        &["mariadb-server-core", "mariadb-server"],
        // my_print_defaults, which mariadb-install-db calls.
        &["mariadb-client-core"],
        &["mariadb-plugin-rocksdb"],
    ],
    programs: &["mariadbd", "mysqld"],
    helpers: mysql::HELPERS,
};

fn version(folder: &Path) -> Result<String, String> {
    let version = mysql::version_in(folder, &["VERSION"])?;
    match mysql::is_mariadb(folder) {
        true => Ok(version),
        false => Err("it is MySQL's, not MariaDB's".to_owned()),
    }
}

/// Optional plugins of MariaDB 10.4 to 12; cmake ignores names that a version does not have.
/// Plugins of the client library have similar names but do not support `NO`; they are not among the
/// targets.
const OFF: &str = "\
    ARCHIVE AUDIT_NULL AUTH_0X0100 AUTH_ED25519 AUTH_GSSAPI AUTH_MYSQL_SHA2 AUTH_PAM AUTH_PAM_V1 \
    AUTH_PARSEC AUTH_SOCKET AUTH_TEST_PLUGIN AWS_KEY_MANAGEMENT BLACKHOLE CASSANDRA COLUMNSTORE \
    CONNECT CRACKLIB_PASSWORD_CHECK DAEMON_EXAMPLE DEBUG_KEY_MANAGEMENT DIALOG_EXAMPLES DISKS \
    EXAMPLE EXAMPLE_KEY_MANAGEMENT FEDERATED FEDERATEDX FEEDBACK FILE_KEY_MANAGEMENT FTEXAMPLE \
    FUNC_TEST HANDLERSOCKET HASHICORP_KEY_MANAGEMENT LOCALES METADATA_LOCK_INFO MROONGA OQGRAPH \
    PASSWORD_REUSE_CHECK PERFSCHEMA PROVIDER_BZIP2 PROVIDER_LZ4 PROVIDER_LZMA PROVIDER_LZO \
    PROVIDER_SNAPPY QA_AUTH_CLIENT QA_AUTH_INTERFACE QA_AUTH_SERVER QUERY_CACHE_INFO \
    QUERY_RESPONSE_TIME S3 SEQUENCE SERVER_AUDIT SIMPLE_PASSWORD_CHECK SPHINX SPIDER SQL_ERRLOG \
    TEST_SQL_DISCOVERY TEST_SQL_SERVICE TEST_VERSIONING TOKUDB TYPE_GEOM TYPE_INET \
    TYPE_MYSQL_JSON TYPE_MYSQL_TIMESTAMP TYPE_TEST TYPE_UUID TYPE_XMLTYPE USERSTAT \
    USER_VARIABLES VIDEX WSREP_INFO XTRADB DUCKDB PROTOCOL_MIRROR TEST_DISCOVERY";

/// Disabled components, and libraries taken from the system because the bundled ones would be
/// downloaded.
const SETTINGS: &[(&str, &str)] = &[
    ("PLUGIN_INNOBASE", "STATIC"),
    ("WITH_UNIT_TESTS", "OFF"),
    ("WITH_EMBEDDED_SERVER", "OFF"),
    ("WITH_WSREP", "OFF"),
    ("WITH_MARIABACKUP", "OFF"),
    ("WITH_SYSTEMD", "no"),
    ("WITH_NUMA", "NO"),
    ("WITH_SSL", "system"),
    ("WITH_ZLIB", "system"),
    ("WITH_PCRE", "system"),
    ("WITH_LIBFMT", "system"),
    ("MYSQL_MAINTAINER_MODE", "OFF"),
    ("CONC_WITH_UNIT_TESTS", "OFF"),
    // In a checkout, it would check out other commits than those that are there.
    ("UPDATE_SUBMODULES", "OFF"),
    ("INSTALL_MYSQLTESTDIR", ""),
    ("INSTALL_SQLBENCHDIR", ""),
];

fn plan(order: &RecipeInput<'_>) -> BuildPlan {
    let mut own: Vec<String> =
        SETTINGS.iter().map(|(name, value)| format!("-D{name}={value}")).collect();
    own.push(format!(
        "-DPLUGIN_ROCKSDB={}",
        if order.inputs.options.myrocks { "DYNAMIC" } else { "NO" }
    ));
    own.extend(OFF.split(' ').map(|name| format!("-DPLUGIN_{name}=NO")));
    match order.inputs.variant.hardening {
        Hardening::Default => {}
        Hardening::On => own.push("-DSECURITY_HARDENED=ON".to_owned()),
        Hardening::Off => own.push("-DSECURITY_HARDENED=OFF".to_owned()),
    }
    let mut targets = vec!["mariadbd", "my_print_defaults", "GenError", "GenFixPrivs"];
    if order.inputs.options.myrocks {
        targets.push("rocksdb");
    }
    BuildPlan {
        steps: vec![configure_with_cmake(order, own), compile_with_ninja(order, &targets)],
        install: Vec::new(),
        pieces: pieces(order),
        has_compile_database: true,
    }
}

fn pieces(order: &RecipeInput<'_>) -> Vec<ExtraFiles> {
    let (source, tree) = (order.source, order.tree);
    let piece =
        |from: PathBuf, to: &'static str, ending: &'static str| ExtraFiles { from, to, ending };
    let mut pieces = vec![
        piece(tree.join("sql/mariadbd"), "bin", ""),
        piece(tree.join("extra/my_print_defaults"), "bin", ""),
        piece(tree.join("scripts/mariadb-install-db"), "bin", ""),
        piece(tree.join("sql/share/english"), "share/english", "errmsg.sys"),
        piece(source.join("sql/share/charsets"), "share/charsets", ".xml"),
        piece(source.join("scripts"), "share", ".sql"),
        piece(tree.join("scripts"), "share", ".sql"),
    ];
    if order.inputs.options.myrocks {
        pieces.push(piece(tree.join("storage/rocksdb"), "lib/plugin", "ha_rocksdb.so"));
    }
    pieces
}

fn needs(inputs: &Inputs<'_>) -> Vec<Prerequisite> {
    let mut needs = vec![
        Prerequisite::program("cmake", "cmake"),
        Prerequisite::program("ninja", "ninja-build"),
        Prerequisite::program("bison", "bison"),
        Prerequisite::program("perl", "perl"),
        Prerequisite::cxx(inputs.compiler),
        Prerequisite::header("openssl/ssl.h", "libssl-dev"),
        Prerequisite::header("curses.h", "libncurses-dev"),
        Prerequisite::header("pcre2.h", "libpcre2-dev"),
        Prerequisite::header("fmt/core.h", "libfmt-dev"),
        Prerequisite::header("zlib.h", "zlib1g-dev"),
        // Without it, InnoDB emulates asynchronous I/O with waiting threads, unlike packaged
        // builds.
        Prerequisite::header("liburing.h", "liburing-dev"),
    ];
    if inputs.options.myrocks {
        needs.push(Prerequisite::header("lz4.h", "liblz4-dev"));
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecipeOptions;
    use crate::recipe::testing;
    use crate::{CompilerKind, System, Variant};

    fn commands(variant: &Variant, myrocks: bool) -> String {
        let options = RecipeOptions { myrocks, ..RecipeOptions::default() };
        testing::commands(System::MariaDb, "10.11.18", variant, CompilerKind::Gcc, &options)
    }

    #[test]
    fn only_server_is_configured_and_compiled() {
        let text = commands(&Variant::by_name("rel_withdbg").unwrap(), false);
        let configure = text.lines().next().unwrap();
        assert!(
            configure.starts_with(
                "cmake -G Ninja -S /src -B . -DCMAKE_BUILD_TYPE=RelWithDebInfo \
                 -DCMAKE_INSTALL_PREFIX=/cache/builds/1f/server \
                 -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_C_COMPILER=/usr/bin/gcc-12 \
                 -DCMAKE_CXX_COMPILER=/usr/bin/g++-12 \
                 '-DCMAKE_C_FLAGS_RELWITHDEBINFO=-frecord-gcc-switches -O2 -g -DNDEBUG' \
                 '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-frecord-gcc-switches -O2 -g -DNDEBUG' \
                 -DPLUGIN_INNOBASE=STATIC"
            ),
            "{configure}"
        );
        for word in ["-DPLUGIN_ROCKSDB=NO", "-DPLUGIN_SPIDER=NO", "-DWITH_UNIT_TESTS=OFF"] {
            assert!(configure.contains(word), "{word}");
        }
        assert!(!configure.contains("SECURITY_HARDENED"), "{configure}");
        let compile = "ninja -j4 mariadbd my_print_defaults GenError GenFixPrivs";
        assert_eq!(text.lines().nth(1), Some(compile));
    }

    #[test]
    fn myrocks_and_hardening_follow_the_request() {
        let variant = Variant {
            hardening: Hardening::Off,
            linker: Some("gold".to_owned()),
            ..Variant::by_name("rel").unwrap()
        };
        let text = commands(&variant, true);
        for word in [
            "-DPLUGIN_ROCKSDB=DYNAMIC",
            "-DSECURITY_HARDENED=OFF",
            "'-DCMAKE_EXE_LINKER_FLAGS=-Wl,-z,norelro -fuse-ld=gold'",
        ] {
            assert!(text.contains(word), "{word} is not in {text}");
        }
        assert!(text.trim_end().ends_with(" GenFixPrivs rocksdb"), "{text}");
    }
}
