//! The build of a MySQL server, with a small source of MySQL's structure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use dbdyno_builds::{Builder, Compiler, Request, SourceOrigin, Sources, System, Variant};

use crate::common::{cache_in, open_folder};

/// What MySQL's recipe needs, as far as this test does not bring it.
fn has_tools() -> bool {
    let tools = ["cmake", "ninja", "bison", "pkg-config", "g++"];
    let missing = tools.iter().find(|tool| Command::new(tool).arg("--version").output().is_err());
    let headers = ["openssl/ssl.h", "curses.h", "libaio.h", "unicode/uversion.h"];
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
    let source = folder.join("mysql-9.9.9");
    let files = [
        ("MYSQL_VERSION", "MYSQL_VERSION_MAJOR=9\nMYSQL_VERSION_MINOR=9\nMYSQL_VERSION_PATCH=9\n"),
        ("CMakeLists.txt", CMAKE),
        ("mysys/my_init.c", "int my_init(void) { return 0; }\n"),
        ("sql/main.cc", "extern \"C\" int my_init(void);\nint main() { return my_init(); }\n"),
        ("client/mysql.cc", "#error the client is not needed\n"),
        ("share/charsets/Index.xml", "<charsets/>\n"),
    ];
    for (name, text) in files {
        let path = source.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    source
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
    if !has_tools() {
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
