//! Creation of a compile database from the commands that make printed, for build tools that write
//! none.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// An entry of the JSON compilation database, as read by clang's tools.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    pub(crate) directory: PathBuf,
    pub(crate) command: String,
    pub(crate) file: String,
    pub(crate) output: Option<String>,
}

/// The compile commands in a log with commands and directories printed by make. Of repeated
/// commands, as in a resumed build, only the last counts.
pub(crate) fn from_log(log: &str, compiler: &Path, start: &Path) -> Vec<Entry> {
    let compiler = compiler.to_string_lossy();
    let mut directories: Vec<PathBuf> = Vec::new();
    let mut entries: Vec<Entry> = Vec::new();
    for line in log.lines() {
        if let Some(directory) = directory(line, "Entering") {
            directories.push(directory);
        } else if directory(line, "Leaving").is_some() {
            directories.pop();
        } else if let Some((file, output)) = compilation(line, &compiler) {
            let directory = directories.last().map_or(start, PathBuf::as_path).to_owned();
            entries.push(Entry { directory, command: line.to_owned(), file, output });
        }
    }
    let mut later = HashSet::new();
    entries.reverse();
    entries.retain(|Entry { directory, file, output, .. }| {
        later.insert((directory.clone(), file.clone(), output.clone()))
    });
    entries.reverse();
    entries
}

/// Whether a line is a compile command; these are counted as progress.
pub(crate) fn is_compilation(line: &str, compiler: &str) -> bool {
    compilation(line, compiler).is_some()
}

fn compilation(line: &str, compiler: &str) -> Option<(String, Option<String>)> {
    let args = line.strip_prefix(compiler)?.strip_prefix(' ')?;
    let words: Vec<&str> = args.split_whitespace().collect();
    let compiles = words.contains(&"-c");
    let is_source =
        |word: &&&str| [".c", ".cc", ".cpp", ".S"].iter().any(|end| word.ends_with(end));
    let file = words.iter().rev().find(is_source).filter(|_| compiles)?;
    let output = words.windows(2).find(|pair| pair[0] == "-o").map(|pair| pair[1].to_owned());
    Some(((*file).to_owned(), output))
}

/// Parses the directory in `make[1]: Entering directory '/x'`.
fn directory(line: &str, word: &str) -> Option<PathBuf> {
    let rest = line.strip_prefix("make")?;
    let (_, rest) = rest.split_once(": ")?;
    let path = rest.strip_prefix(word)?.strip_prefix(" directory '")?.strip_suffix('\'')?;
    Some(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use dbdyno_fuzz::Fuzz;

    use super::*;

    const LOG: &str = "make: Entering directory '/t/src'\n\
        /usr/bin/gcc -O2 -c -o a.o /s/a.c\n\
        make[1]: Entering directory '/t/src/port'\n\
        /usr/bin/gcc -O2 -DX -c -o a.o /s/port/a.c\n\
        /usr/bin/gcc -O2 a.o -o prog\n\
        make[1]: Leaving directory '/t/src/port'\n\
        /usr/bin/gcc -O2 -c -o a.o /s/a.c\n\
        rm -f x.c\n";

    #[test]
    fn compilations_are_found_with_their_directories() {
        let entries = from_log(LOG, Path::new("/usr/bin/gcc"), Path::new("/t"));
        let short: Vec<String> = entries
            .iter()
            .map(|e| format!("{} {} {:?}", e.directory.display(), e.file, e.output))
            .collect();
        assert_eq!(
            short,
            ["/t/src/port /s/port/a.c Some(\"a.o\")", "/t/src /s/a.c Some(\"a.o\")",]
        );
        assert_eq!(entries[1].command, "/usr/bin/gcc -O2 -c -o a.o /s/a.c");
    }

    #[test]
    fn damaged_logs_are_read() {
        let words = [
            "make[1]: Entering directory '",
            "make: Leaving directory '",
            "'",
            " -c ",
            " -o ",
            ".c",
        ];
        Fuzz::new(vec![LOG.into()]).words(&words).run(|log| {
            let log = String::from_utf8_lossy(log);
            let entries = from_log(&log, Path::new("/usr/bin/gcc"), Path::new("/t"));
            assert!(entries.len() <= log.lines().count());
        });
    }

    #[test]
    fn long_log_is_read_in_time() {
        let line = |number| format!("/usr/bin/gcc -c {number}.c\n/usr/bin/gcc -c same.c\n");
        let log: String = (0..50_000).map(line).collect();
        let start = Instant::now();
        let entries = from_log(&log, Path::new("/usr/bin/gcc"), Path::new("/t"));
        assert_eq!(entries.len(), 50_001);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }

    #[test]
    fn link_is_not_a_compilation() {
        assert!(is_compilation("/usr/bin/gcc -c x.c -o x.o", "/usr/bin/gcc"));
        assert!(!is_compilation("/usr/bin/gcc x.o -o x", "/usr/bin/gcc"));
        assert!(!is_compilation("/usr/bin/gcc-12 -c x.c", "/usr/bin/gcc"));
    }
}
