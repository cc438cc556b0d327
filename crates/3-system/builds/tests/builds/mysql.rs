//! The build of a MySQL server, with a small source of MySQL's structure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use dbdyno_audit::Expected;
use dbdyno_builds::{
    Build, BuildError, Builder, Compiler, RecipeOptions, Request, SourceOrigin, Sources, System,
    Variant,
};

use crate::common::{cache_in, open_folder};
use crate::outside::write_program;

/// What MySQL's recipe needs, as far as a test does not bring it.
fn has_tools(more: &[&str], headers: &[&str]) -> bool {
    let tools = [&["cmake", "ninja", "bison", "pkg-config", "perl", "g++"][..], more].concat();
    let missing = tools.iter().find(|tool| Command::new(tool).arg("--version").output().is_err());
    let header = headers.iter().find(|name| !Path::new("/usr/include").join(name).is_file());
    match missing.or(header) {
        None => true,
        Some(missing) => {
            dbdyno_fuzz::skip(&format!("no {missing} here"));
            false
        }
    }
}

const CMAKE: &str = r#"
cmake_minimum_required(VERSION 3.10)
project(MySQL C CXX)
foreach(part WITH_ROUTER WITH_MYSQLX WITH_PACKAGE_FLAGS WITH_UNIT_TESTS)
  if(NOT DEFINED ${part} OR ${part})
    message(FATAL_ERROR "${part} is on")
  endif()
endforeach()
# As MySQL's, before the flags of the build type.
set(CMAKE_CXX_FLAGS "-fno-omit-frame-pointer ${CMAKE_CXX_FLAGS}")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/runtime_output_directory)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/library_output_directory)
add_library(mysys SHARED mysys/my_init.c)
add_executable(mysqld sql/main.cc)
target_link_libraries(mysqld mysys)
# CMake ends the paths in the build directory with empty entries, as space for these.
set_target_properties(mysqld mysys PROPERTIES INSTALL_RPATH "\$ORIGIN/../lib/mysql/private/of/this")
install(TARGETS mysqld mysys DESTINATION bin)
add_executable(mysql client/mysql.cc)
add_custom_target(GenError ALL
  COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/share/english
  COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/share/english/errmsg.sys)
"#;

fn write_mysql(folder: &Path) -> PathBuf {
    let files = [
        ("MYSQL_VERSION", "MYSQL_VERSION_MAJOR=9\nMYSQL_VERSION_MINOR=9\nMYSQL_VERSION_PATCH=9\n"),
        ("CMakeLists.txt", CMAKE),
        ("mysys/my_init.c", "int my_init(void) { return 0; }\n"),
        ("sql/main.cc", "extern \"C\" int my_init(void);\nint main() { return my_init(); }\n"),
        ("client/mysql.cc", "#error the client is not needed\n"),
        ("share/charsets/Index.xml", "<charsets/>\n"),
    ];
    write_files(&folder.join("mysql-9.9.9"), &files)
}

fn write_files(folder: &Path, files: &[(&str, &str)]) -> PathBuf {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    folder.to_owned()
}

/// As Facebook's MySQL 8.0: RocksDB is a submodule beside the server's files, and a part of the engine.
const FACEBOOK: &str = r#"
cmake_minimum_required(VERSION 3.10)
project(MySQL C CXX)
add_subdirectory(storage/rocksdb)
add_executable(mysqld sql/main.cc)
target_link_libraries(mysqld rocksdb_se)
install(TARGETS mysqld DESTINATION bin)
"#;

/// It adds an instruction set to the flags of its directory.
const ENGINE: &str = r#"
if(NOT EXISTS ${CMAKE_SOURCE_DIR}/rocksdb/Makefile)
  message(FATAL_ERROR "Missing Makefile in rocksdb directory.")
endif()
execute_process(COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/get_rocksdb_files.sh
  OUTPUT_VARIABLE listed WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
string(REGEX MATCHALL "[^\n]+" files "${listed}")
if(NOT ROCKSDB_BUILD_ARCH)
  set(ROCKSDB_BUILD_ARCH native)
endif()
set(CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS} -march=${ROCKSDB_BUILD_ARCH}")
add_library(rocksdb_sources STATIC ${files})
add_library(rocksdb_se STATIC ha_rocksdb.cc)
target_link_libraries(rocksdb_se rocksdb_sources)
"#;

/// Lists the files of the library, and writes one into the source.
const LIST: &str = r#"
echo ../../rocksdb/db/db_impl.cc
echo ../../rocksdb/util/build_version.cc
echo 'int build_version() { return 0; }' > rocksdb/util/build_version.cc
"#;

fn write_facebooks(folder: &Path) -> PathBuf {
    let files = [
        ("MYSQL_VERSION", "MYSQL_VERSION_MAJOR=8\nMYSQL_VERSION_MINOR=0\nMYSQL_VERSION_PATCH=32\n"),
        ("CMakeLists.txt", FACEBOOK),
        ("sql/main.cc", "int engine();\nint main() { return engine(); }\n"),
        ("storage/rocksdb/CMakeLists.txt", ENGINE),
        ("storage/rocksdb/get_rocksdb_files.sh", LIST),
        ("storage/rocksdb/ha_rocksdb.cc", "int open_db();\nint engine() { return open_db(); }\n"),
        ("rocksdb/Makefile", ""),
        ("rocksdb/util/crc32c.h", ""),
        (
            "rocksdb/db/db_impl.cc",
            "int build_version();\nint open_db() { return build_version(); }\n",
        ),
    ];
    write_files(&folder.join("mysql-8.0.32"), &files)
}

/// Compilers that find the headers which MyRocks requires, all of them empty.
fn compiler_with_headers(folder: &Path) -> Compiler {
    let names = "openssl/ssl.h curses.h libaio.h tirpc/netconfig.h lz4.h zstd.h snappy-c.h";
    let files: Vec<(&str, &str)> = names.split(' ').map(|name| (name, "")).collect();
    let headers = write_files(&folder.join("include"), &files);
    for name in ["gcc", "g++"] {
        let script = format!("#!/bin/sh\nexec {name} -isystem {} \"$@\"\n", headers.display());
        write_program(&folder.join(name), &script);
    }
    Compiler::find(folder.join("gcc").to_str().unwrap()).unwrap()
}

/// Compiles a source with MyRocks as `rel`.
fn build_with_myrocks(folder: &Path, source: PathBuf) -> Result<Build, BuildError> {
    let builder = Builder::new(cache_in(folder, "cache"));
    let sources = Sources::new(&builder.cache_dir, Arc::default());
    let source = sources.obtain(System::MySql, &SourceOrigin::Path(source), &|_| {}).unwrap();
    let options = RecipeOptions { myrocks: true, ..RecipeOptions::default() };
    let variant = Variant::by_name("rel").unwrap();
    let request =
        Request { options, ..Request::new(source, variant, compiler_with_headers(folder)) };
    builder.build(std::slice::from_ref(&request), &|_| {}).remove(0)
}

#[test]
fn instruction_set_that_the_build_system_adds_to_rocksdb_is_named() {
    if !has_tools(&["rpcgen"], &[]) {
        return;
    }
    let dir = open_folder();
    let source = write_facebooks(dir.path());
    let build = build_with_myrocks(dir.path(), source.clone()).unwrap();
    assert_eq!(build.artifact, build.folder.join("server/bin/mysqld"));
    assert!(Command::new(&build.artifact).status().unwrap().success());
    // What the build system writes into the source is in the copy.
    let written = "rocksdb/util/build_version.cc";
    assert!(build.tree.join("source").join(written).is_file() && !source.join(written).exists());
    // It may not run on another CPU, and is not shared with one.
    assert!(build.is_native());

    let expected = Expected::of_flags(&build.flags);
    let expected = Expected { name: Some("rel".to_owned()), ..expected };
    let database = build.compile_database();
    let linked = [build.artifact.clone()];
    let audit =
        dbdyno_audit::build_watched(&build.tree, &linked, Some(&database), &expected, &|_| {})
            .unwrap();
    assert!(audit.has_violations());
    let directories: Vec<String> = audit.unrequested().iter().map(ToString::to_string).collect();
    let engine = "storage/rocksdb: 3 of 3 files have -march=native, which the variant rel does not \
                  ask for";
    assert_eq!(directories, [engine]);
}

#[test]
fn source_without_myrocks_is_refused_before_it_is_compiled() {
    if !has_tools(&["rpcgen"], &[]) {
        return;
    }
    let dir = open_folder();
    let source = write_facebooks(dir.path());
    fs::remove_dir_all(source.join("storage")).unwrap();
    let error = build_with_myrocks(dir.path(), source).unwrap_err().to_string();
    assert!(error.contains("its source has no MyRocks"), "{error}");
}

#[test]
fn linker_that_the_build_system_ignores_is_refused() {
    let dir = open_folder();
    let source = write_mysql(dir.path());
    let builder = Builder::new(cache_in(dir.path(), "cache"));
    let sources = Sources::new(&builder.cache_dir, Arc::default());
    let source = sources.obtain(System::MySql, &SourceOrigin::Path(source), &|_| {}).unwrap();
    let gold = Variant { linker: Some("gold".to_owned()), ..Variant::by_name("rel").unwrap() };
    let request = Request::new(source, gold, Compiler::find("gcc").unwrap());
    let error = builder.build(std::slice::from_ref(&request), &|_| {}).remove(0).unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("linker gold is not supported for mysql 9.9.9 as rel"), "{error}");
    assert!(error.ends_with("use lld, mold or bfd"), "{error}");
}

#[test]
fn server_of_mysql_is_compiled_without_the_rest() {
    if !has_tools(&[], &["openssl/ssl.h", "curses.h", "libaio.h", "unicode/uversion.h"]) {
        return;
    }
    let dir = open_folder();
    let source = write_mysql(dir.path());
    let builder = Builder::new(cache_in(dir.path(), "cache"));
    let sources = Sources::new(&builder.cache_dir, Arc::default());
    let source = sources.obtain(System::MySql, &SourceOrigin::Path(source), &|_| {}).unwrap();
    assert_eq!(source.version(), "9.9.9");
    let variant = Variant::by_name("rel_withdbg").unwrap();
    let request = Request::new(source, variant, Compiler::find("gcc").unwrap());
    let build = builder.build(std::slice::from_ref(&request), &|_| {}).remove(0).unwrap();

    assert_eq!(build.artifact, build.folder.join("server/bin/mysqld"));
    for file in ["bin/mysqld", "library_output_directory/libmysys.so"] {
        let file = build.folder.join("server").join(file);
        let shown = Command::new("readelf").arg("-dW").arg(&file).output().unwrap().stdout;
        let shown = String::from_utf8(shown).unwrap();
        // An empty entry is the current directory.
        assert!(!shown.contains(":]") && !shown.contains("::"), "{shown}");
    }
    // It does not need the build directory, which the cache may remove.
    let tree = build.tree.with_file_name("moved");
    fs::rename(&build.tree, &tree).unwrap();
    assert!(Command::new(&build.artifact).status().unwrap().success());
    fs::rename(&tree, &build.tree).unwrap();
    for file in ["share/english/errmsg.sys", "share/charsets/Index.xml"] {
        assert!(build.folder.join("server").join(file).is_file(), "{file}");
    }
    // The objects stay for the audit, with the variant's flags after MySQL's own.
    let database = fs::read_to_string(build.compile_database()).unwrap();
    let database: serde_json::Value = serde_json::from_str(&database).unwrap();
    let entries = database.as_array().unwrap();
    let server = entries
        .iter()
        .find(|entry| entry["file"].as_str().is_some_and(|file| file.ends_with("sql/main.cc")));
    let command = server.unwrap()["command"].as_str().unwrap();
    let flags = "-fno-omit-frame-pointer  -frecord-gcc-switches -O2 -g -DNDEBUG";
    assert!(command.contains(flags), "{command}");
    assert!(build.tree.join("CMakeFiles/mysqld.dir/sql/main.cc.o").is_file());
    assert!(build.settings.debug && !build.settings.assertions);
}
