//! Names of new code for `perf` and other tools: the file `/tmp/perf-PID.map`.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::patch::Name;

/// Where the names of a process's generated code are looked for.
#[must_use]
pub fn path(pid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/perf-{pid}.map"))
}

/// Adds names to those that are there. Tools work without it, so a failure is none of ours.
pub(crate) fn write(pid: u32, names: &[Name]) {
    let text: String = names
        .iter()
        .map(|name| {
            let (start, size) = (name.range.start, name.range.end - name.range.start);
            format!("{start:x} {size:x} {}\n", name.name)
        })
        .collect();
    // Everybody may write to this directory: never follow a link, never touch files of others.
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path(pid));
    // SAFETY: takes nothing and cannot fail.
    let me = unsafe { libc::geteuid() };
    if let Ok(mut file) = file
        && file.metadata().is_ok_and(|data| data.is_file() && data.uid() == me && data.nlink() == 1)
    {
        let _ = file.write_all(text.as_bytes());
    }
}
