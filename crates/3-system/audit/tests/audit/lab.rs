//! A directory to compile in, and helpers to query its audit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dbdyno_audit::{Audit, AuditError, Check, Expected, ObjectRecord, Severity, build_watched};
use tempfile::TempDir;

/// Source affected by hardening flags: a buffer for the stack protector, a copy for
/// `_FORTIFY_SOURCE`, an assertion.
pub const SOURCE: &str = r#"
#include <assert.h>
#include <string.h>
int used(const char *text, int length);
int copy(char *to, const char *from, int length) {
    char buffer[64];
    assert(length > 0);
    memcpy(buffer, from, length);
    strcpy(to, buffer);
    return used(buffer, length);
}
"#;

/// A program with a loop that compilers vectorize.
pub const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static double a[4096], b[4096];
__attribute__((noinline)) static double sum(int n) {
    double s = 0;
    for (int i = 0; i < n; i++) { a[i] = a[i] * b[i] + 1; s += a[i]; }
    return s;
}
int main(int argc, char **argv) {
    for (int i = 0; i < 4096; i++) b[i] = i * argc;
    printf("%f\n", sum(4096));
    return 0;
}
"#;

pub struct Lab {
    dir: TempDir,
}

impl Lab {
    pub fn new() -> Self {
        let lab = Self { dir: tempfile::tempdir().unwrap() };
        lab.write("a.c", SOURCE);
        lab
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Compiles `a.c` to `object`.
    #[track_caller]
    pub fn object(&self, compiler: &str, flags: &str, object: &str) -> PathBuf {
        fs::create_dir_all(self.path().join(object).parent().unwrap()).unwrap();
        self.run(compiler, &format!("{flags} -c a.c -o {object}"));
        self.path().join(object)
    }

    #[track_caller]
    pub fn run(&self, program: &str, words: &str) {
        let output = Command::new(program)
            .args(words.split_whitespace())
            .current_dir(self.path())
            .output()
            .unwrap_or_else(|error| {
                panic!("{program}: {error}; scripts/setup.sh test installs it")
            });
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {words}\n{message}");
    }

    /// Audits all objects.
    #[track_caller]
    pub fn audit(&self, expectations: &[&str]) -> Audit {
        build(self.path(), &[], None, &expected(expectations)).unwrap()
    }
}

pub fn expected(expectations: &[&str]) -> Expected {
    let mut expected = Expected::default();
    for expectation in expectations {
        expected.set(expectation).unwrap();
    }
    expected
}

/// The checks with violations, each with the names of the objects, in order.
pub fn violations(audit: &Audit) -> Vec<(Check, String)> {
    found(audit, Severity::Violation)
}

/// The checks with findings of one severity, each with the name of the object.
pub fn found(audit: &Audit, severity: Severity) -> Vec<(Check, String)> {
    audit
        .findings
        .iter()
        .filter(|finding| finding.severity == severity)
        .map(|finding| {
            let name = match finding.location {
                dbdyno_audit::Location::Object(index) => audit.objects[index].name(),
                dbdyno_audit::Location::Binary(index) => {
                    audit.binaries[index].path.display().to_string()
                }
                dbdyno_audit::Location::Whole => "all".to_owned(),
            };
            (finding.check, name)
        })
        .collect()
}

/// The object with this name.
#[track_caller]
pub fn object<'a>(audit: &'a Audit, name: &str) -> &'a ObjectRecord {
    audit
        .objects
        .iter()
        .find(|object| object.name() == name)
        .unwrap_or_else(|| panic!("no {name} among {:?}", audit.objects))
}

/// An audit without reports of progress.
pub fn build(
    objects_dir: &Path,
    linked: &[PathBuf],
    compile_db: Option<&Path>,
    expected: &Expected,
) -> Result<Audit, AuditError> {
    build_watched(objects_dir, linked, compile_db, expected, &|_| {})
}
