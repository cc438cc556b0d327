//! The compile database: the compile commands recorded by the build tool.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::error::AuditError;
use crate::read::open;

/// Maximum size of all response files of a database in bytes.
const MAX_RESPONSES: u64 = 16 << 20;

/// An entry of `compile_commands.json`.
#[derive(Deserialize)]
struct Written {
    directory: PathBuf,
    file: PathBuf,
    command: Option<String>,
    arguments: Option<Vec<String>>,
    output: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(crate) struct CompileCommand {
    directory: PathBuf,
    file: PathBuf,
    /// The arguments, without the compiler's name.
    pub(crate) flags: Vec<String>,
}

impl CompileCommand {
    /// Whether its source is assembly language.
    pub(crate) fn is_assembly(&self) -> bool {
        is_assembly(&self.file)
    }

    /// Replaces the names of response files (`@FILE`) by their words, as compilers do; one that cannot be
    /// read stays. `left`: how many bytes may be read.
    fn expand(&mut self, left: &mut u64) {
        let mut read = |word: &str| {
            let mut text = String::new();
            let file = open(&self.directory.join(word.strip_prefix('@')?)).ok()?;
            file.take(*left + 1).read_to_string(&mut text).ok()?;
            *left = left.checked_sub(text.len() as u64)?;
            shlex::split(&text)
        };
        let words = std::mem::take(&mut self.flags).into_iter();
        self.flags = words.flat_map(|word| read(&word).unwrap_or_else(|| vec![word])).collect();
    }
}

/// All commands, indexed by output and source file.
#[derive(Debug, Default)]
pub(crate) struct Database {
    entries: Vec<CompileCommand>,
    by_output: HashMap<PathBuf, usize>,
    by_source: HashMap<PathBuf, Vec<usize>>,
    by_name: HashMap<String, Vec<usize>>,
}

impl Database {
    pub(crate) fn read(path: &Path) -> Result<Self, AuditError> {
        let mut text = Vec::new();
        open(path)
            .and_then(|mut file| file.read_to_end(&mut text))
            .map_err(|error| AuditError::read(path, &error))?;
        let mut database =
            Self::parse(&text).map_err(|reason| AuditError::database(path, &reason))?;
        let mut left = MAX_RESPONSES;
        database.entries.iter_mut().for_each(|entry| entry.expand(&mut left));
        Ok(database)
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let written: Vec<Written> =
            serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let mut database = Self::default();
        for (number, entry) in (1..).zip(written) {
            let words = match (entry.arguments, entry.command) {
                (Some(arguments), _) => arguments,
                (None, Some(command)) => shlex::split(&command).ok_or_else(|| {
                    format!("the command of entry {number} has an open quote: {command}")
                })?,
                (None, None) => {
                    return Err(format!("entry {number} has neither `command` nor `arguments`"));
                }
            };
            let index = database.entries.len();
            let named = words.iter().position(|word| word == "-o");
            let output = entry
                .output
                .or_else(|| words.get(named? + 1).map(PathBuf::from))
                .map(|output| clean(&entry.directory.join(output)));
            if let Some(output) = output {
                let name = output.file_name().map(|name| name.to_string_lossy().into_owned());
                database.by_name.entry(name.unwrap_or_default()).or_default().push(index);
                database.by_output.insert(output, index);
            }
            let source = clean(&entry.directory.join(&entry.file));
            database.by_source.entry(source).or_default().push(index);
            let flags = words.into_iter().skip(1).collect();
            let (directory, file) = (entry.directory, entry.file);
            database.entries.push(CompileCommand { directory, file, flags });
        }
        Ok(database)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The command for an object: by its full path; otherwise, if only one matches, by
    /// its source file or by the name of an archive member.
    pub(crate) fn find(
        &self,
        object: &Path,
        member: Option<&str>,
        source: Option<&str>,
    ) -> Option<&CompileCommand> {
        let only = |found: Option<&Vec<usize>>| match found?.as_slice() {
            [one] => Some(*one),
            _ => None,
        };
        let by_output = match member {
            None => self.by_output.get(object).copied(),
            Some(member) => only(self.by_name.get(member)),
        };
        let index = by_output.or_else(|| only(self.by_source.get(Path::new(source?))));
        index.map(|index| &self.entries[index])
    }
}

/// Removes `.` and `..` from a path lexically, without resolving symbolic links.
pub(crate) fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => match clean.components().next_back() {
                Some(Component::Normal(_)) => {
                    clean.pop();
                }
                // The parent of the root is the root.
                Some(Component::RootDir) => {}
                _ => clean.push(".."),
            },
            part => clean.push(part),
        }
    }
    clean
}

/// Whether a source file is assembly language, by its suffix.
pub(crate) fn is_assembly(source: &Path) -> bool {
    source
        .extension()
        .is_some_and(|suffix| ["s", "S", "sx", "asm"].iter().any(|assembly| suffix == *assembly))
}

/// The directory of the build that an object belongs to, without the subdirectories that build
/// tools add for objects (`CMakeFiles/x.dir`, `x.p`, `.libs`).
pub(crate) fn component(object: &Path) -> String {
    let mut component = PathBuf::new();
    let directory = object.parent().unwrap_or(Path::new(""));
    for part in directory.components() {
        let name = part.as_os_str().to_string_lossy();
        if name == "CMakeFiles" || name == ".libs" || name.ends_with(".p") {
            break;
        }
        component.push(part);
    }
    match component.to_string_lossy() {
        name if name.is_empty() => ".".to_owned(),
        name => name.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    const TWO: &str = r#"[
        {"directory": "/b", "file": "../s/a.c", "command": "cc -DX='a b' -O2 -c ../s/a.c -o a.o"},
        {"directory": "/b", "file": "b.c", "arguments": ["cc", "-O3", "b.c"], "output": "b.o"}
    ]"#;

    #[test]
    fn finds_commands_by_output_member_and_source() {
        let database = Database::parse(TWO.as_bytes()).unwrap();
        assert_eq!(database.len(), 2);
        let find = |object: &str, member, source| {
            Some(database.find(Path::new(object), member, source)?.flags[0].as_str())
        };
        assert_eq!(find("/b/a.o", None, None), Some("-DX=a b"));
        assert_eq!(find("/b/lib.a", Some("b.o"), None), Some("-O3"));
        assert_eq!(find("/other/x.o", None, Some("/s/a.c")), Some("-DX=a b"));
        assert_eq!(find("/other/x.o", None, Some("/s/c.c")), None);
    }

    #[test]
    fn damaged_databases_are_read_or_refused() {
        let words = [
            "'",
            "\\\"",
            "\\\\",
            " -o ",
            "../",
            "\"command\":",
            "null",
            "[[[[",
            "1e999",
            "\\u0000",
        ];
        Fuzz::new(vec![TWO.into()]).words(&words).cases(512).run(|text| {
            let Ok(database) = Database::parse(text) else { return };
            for (object, member) in [("/b/a.o", None), ("/b/lib.a", Some("b.o"))] {
                if let Some(command) = database.find(Path::new(object), member, Some("/s/a.c")) {
                    assert!(command.flags.len() <= text.len());
                }
            }
        });
    }

    #[test]
    fn invalid_database_is_rejected_with_reason() {
        let reason = |text: &str| Database::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(reason("{").contains("line 1"));
        assert!(reason(r#"[{"directory":"/","file":"a"}]"#).contains("entry 1 has neither"));
        let open = r#"[{"directory":"/","file":"a","command":"cc 'a"}]"#;
        assert!(reason(open).contains("open quote"));
    }

    #[test]
    fn paths_are_cleaned() {
        let of = |path: &str| clean(Path::new(path)).display().to_string();
        assert_eq!(of("/a/./b/../c.c"), "/a/c.c");
        assert_eq!(of("../x/../y.c"), "../y.c");
        assert_eq!(of("/../x"), "/x");
    }

    #[test]
    fn components_are_directories_of_the_build() {
        let of = |path: &str| component(Path::new(path));
        assert_eq!(
            of("storage/innobase/CMakeFiles/innobase.dir/btr/btr0btr.cc.o"),
            "storage/innobase"
        );
        assert_eq!(of("src/backend/access/heap/heapam.o"), "src/backend/access/heap");
        assert_eq!(of("src/port/libpgport.a.p/path.c.o"), "src/port");
        assert_eq!(of("src/.libs/x.o"), "src");
        assert_eq!(of("x.o"), ".");
    }
}
