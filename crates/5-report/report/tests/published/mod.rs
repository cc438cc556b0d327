//! Access to the published runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;

/// The directory `runs/NAME`.
pub fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../runs").join(name)
}

/// Restores `runs/NAME/RUN.sql.xz` as `to/run.sqlite`.
pub fn restore(name: &str, run: &str, to: &Path) {
    let packed = directory(name).join(format!("{run}.sql.xz"));
    let xz = Command::new("xz").arg("-dc").arg(&packed).output().expect("install xz-utils");
    assert!(xz.status.success(), "{}", packed.display());
    let sql = String::from_utf8(xz.stdout).unwrap();
    Connection::open(to.join("run.sqlite")).unwrap().execute_batch(&sql).unwrap();
}
