//! Names for `perf`: the file `/tmp/perf-PID.map`, where it looks for those of generated code.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::journal::Area;
use crate::patch::CodeSymbol;

fn path(pid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/perf-{pid}.map"))
}

/// Adds names to those that are there and still name code of ours.
pub(super) fn write<'a>(pid: u32, names: &[CodeSymbol], areas: impl Iterator<Item = &'a Area>) {
    let areas: Vec<Range<u64>> = areas.map(Area::code_range).collect();
    // Everybody may write to this directory: never follow a link, never touch files of others.
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path(pid));
    // SAFETY: takes nothing and cannot fail.
    let me = unsafe { libc::geteuid() };
    let is_ours = |file: &File| {
        file.metadata().is_ok_and(|data| data.is_file() && data.uid() == me && data.nlink() == 1)
    };
    if let Ok(mut file) = file
        && is_ours(&file)
    {
        let _ = rewrite(&mut file, names, &areas);
    }
}

fn rewrite(file: &mut File, names: &[CodeSymbol], areas: &[Range<u64>]) -> io::Result<()> {
    let mut before = String::new();
    file.read_to_string(&mut before)?;
    let start = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    let is_new = |at: u64| names.iter().any(|name| name.range.contains(&at));
    let mut text = String::new();
    for line in before.lines() {
        let kept = |at: u64| areas.iter().any(|area| area.contains(&at)) && !is_new(at);
        if start(line).is_some_and(kept) {
            text.push_str(line);
            text.push('\n');
        }
    }
    for name in names {
        let (start, size) = (name.range.start, name.range.end - name.range.start);
        text.push_str(&format!("{start:x} {size:x} {}\n", name.name));
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_code_that_is_gone_are_forgotten() {
        let name =
            |start: u64, name: &str| CodeSymbol { range: start..start + 16, name: name.into() };
        let mut file = tempfile::tempfile().unwrap();
        rewrite(&mut file, &[name(0x1000, "old"), name(0x2000, "kept")], &[]).unwrap();
        file.rewind().unwrap();
        rewrite(&mut file, &[name(0x3000, "new")], &[0x2000..0x2800, 0x3000..0x3800]).unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "2000 10 kept\n3000 10 new\n");
    }
}
