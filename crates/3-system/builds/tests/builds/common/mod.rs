//! A small source with PostgreSQL's structure that compiles quickly.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use dbdyno_builds::CacheDir;
use tempfile::TempDir;

use crate::outside::write_program;

/// A temporary directory accessible to all users, as servers require.
pub fn open_folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// The cache in the directory `name` of `dir`.
pub fn cache_in(dir: &Path, name: &str) -> CacheDir {
    CacheDir::open(&dir.join(name)).unwrap()
}

/// Writes the source into `folder`. Its compilation waits until the file `go` exists. One of its
/// files is generated: it contains the path where it was generated, and the statements in the file
/// `go.more`.
pub fn write_source(folder: &Path, go: &Path) -> PathBuf {
    let source = folder.join("postgresql-99.1");
    let files = [
        ("src/backend/a.c", "int a(void) { return 1; }\n".to_owned()),
        ("src/backend/b.c", "int b(void) { return 2; }\n".to_owned()),
        ("src/backend/slow.c", "int slow(void) { return 3; }\n".to_owned()),
        ("src/backend/main.c", "int a(void); int main(void) { return a() - 1; }\n".to_owned()),
    ];
    for (name, text) in files {
        let path = source.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    write_program(&source.join("configure"), &CONFIGURE.replace("@GO@", &go.to_string_lossy()));
    source
}

const CONFIGURE: &str = r#"#!/bin/sh
# Looks like PostgreSQL's, as far as dbdyno looks.
PACKAGE_VERSION='99.1'
set -e
for arg; do
    case $arg in
    --prefix=*) prefix=${arg#*=} ;;
    CC=*) CC=${arg#*=} ;;
    CFLAGS=*) CFLAGS=${arg#*=} ;;
    LDFLAGS=*) LDFLAGS=${arg#*=} ;;
    esac
done
source=$(cd "$(dirname "$0")" && pwd)
for inner in timezone backend/utils/mb/conversion_procs backend/snowball pl/plpgsql/src \
    interfaces/libpq bin/initdb; do
    mkdir -p "src/$inner"
    printf 'all install:\n\t@:\n' > "src/$inner/Makefile"
done
{
    printf 'generated-headers:\n\t@:\nall: postgres\npostgres: a.o b.o slow.o made.o main.o\n'
    printf '\t%s %s %s a.o b.o slow.o made.o main.o -o postgres\n' "$CC" "$CFLAGS" "$LDFLAGS"
    printf 'slow.o: b.o\n\t@while [ ! -e @GO@ ]; do sleep 0.1; done\n'
    printf '\t%s %s -c -o slow.o %s/src/backend/slow.c\n' "$CC" "$CFLAGS" "$source"
    printf 'made.c:\n\t@printf "\\043line 1 \\"%%s/made.y\\"\\nint made(int x) { %%s return x; }\\n"'
    printf ' "$(CURDIR)" "$$(cat @GO@.more 2> /dev/null)" > made.c\n'
    printf 'made.o: made.c\n\t%s %s -c -o made.o made.c\n' "$CC" "$CFLAGS"
    printf '%%.o: %s/src/backend/%%.c\n\t%s %s -c -o $@ $<\n' "$source" "$CC" "$CFLAGS"
    printf 'install: all\n\tmkdir -p $(DESTDIR)%s/bin\n\tcp postgres $(DESTDIR)%s/bin/\n' \
        "$prefix" "$prefix"
} > src/backend/Makefile
"#;
