//! The file `/tmp/perf-PID.map`, where `perf` looks for symbols of generated code.

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

/// Adds symbols, and removes existing ones whose code has been freed.
pub(crate) fn write<'a>(pid: u32, symbols: &[CodeSymbol], areas: impl Iterator<Item = &'a Area>) {
    let areas: Vec<Range<u64>> = areas.map(Area::code_range).collect();
    // The directory is writable for all: do not follow links, and do not change files of others.
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path(pid));
    let user = rustix::process::geteuid().as_raw();
    let is_ours = |file: &File| {
        file.metadata().is_ok_and(|data| data.is_file() && data.uid() == user && data.nlink() == 1)
    };
    if let Ok(mut file) = file
        && is_ours(&file)
    {
        let _ = rewrite(&mut file, symbols, &areas);
    }
}

fn rewrite(file: &mut File, symbols: &[CodeSymbol], areas: &[Range<u64>]) -> io::Result<()> {
    let mut before = String::new();
    file.read_to_string(&mut before)?;
    let start = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    let is_new = |at: u64| symbols.iter().any(|symbol| symbol.range.contains(&at));
    let mut text = String::new();
    for line in before.lines() {
        let is_kept = |at: u64| areas.iter().any(|area| area.contains(&at)) && !is_new(at);
        if start(line).is_some_and(is_kept) {
            text.push_str(line);
            text.push('\n');
        }
    }
    for symbol in symbols {
        let (start, size) = (symbol.range.start, symbol.range.end - symbol.range.start);
        text.push_str(&format!("{start:x} {size:x} {}\n", symbol.name));
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_freed_code_are_removed() {
        let symbol =
            |start: u64, name: &str| CodeSymbol { range: start..start + 16, name: name.into() };
        let mut file = tempfile::tempfile().unwrap();
        rewrite(&mut file, &[symbol(0x1000, "old"), symbol(0x2000, "kept")], &[]).unwrap();
        file.rewind().unwrap();
        rewrite(&mut file, &[symbol(0x3000, "new")], &[0x2000..0x2800, 0x3000..0x3800]).unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "2000 10 kept\n3000 10 new\n");
    }
}
