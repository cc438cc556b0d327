//! A script with all modules that it requires.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::required::{Required, required};
use crate::version::Version;

/// A script and its modules. Complete: a run needs no files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The name in messages, such as `oltp_read_only.lua`.
    pub name: String,
    /// The path as it was given, if it is another one than the name. Scripts see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The text of the script.
    pub text: String,
    /// The modules that it or another module requires, and files that they read as Lua.
    pub modules: Vec<Module>,
    /// The version of sysbench that it is written for.
    #[serde(default, skip_serializing_if = "Version::is_default")]
    pub version: Version,
}

/// A required module, or a file of `dofile` or `loadfile`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// The name in `require`; of a file, the same as `file`.
    pub name: String,
    /// The name of its file in messages, relative to the directory in which it was found.
    pub file: String,
    pub text: String,
}

/// A module that was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingModule {
    /// The name in `require`.
    pub name: String,
    /// The file with the `require`.
    pub file: String,
    /// Its line, from 1.
    pub line: u32,
}

/// Where scripts and modules are searched for, after the directory of the script and the current one.
const DIRECTORIES: [&str; 2] = ["/usr/local/share/sysbench", "/usr/share/sysbench"];

/// Why a script cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The script itself, with the reason.
    Unreadable(String),
    /// Modules that were not found.
    Missing(Vec<MissingModule>),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(reason) => f.write_str(reason),
            Self::Missing(modules) => {
                for (number, MissingModule { name, file, line }) in modules.iter().enumerate() {
                    let separator = if number > 0 { "\n" } else { "" };
                    write!(f, "{separator}{file}:{line}: module `{name}` was not found")?;
                }
                write!(
                    f,
                    "; searched next to the script, in the directory that its path is relative to, and in {}",
                    DIRECTORIES.join(" and ")
                )
            }
        }
    }
}

impl Source {
    /// Finds a script and its modules. `read` reads a file, or says why it cannot. A name without a directory is
    /// also searched for in sysbench's directories.
    ///
    /// # Errors
    /// The script cannot be read, or requires modules that were not found.
    pub fn find(
        path: &str,
        read: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Self, SourceError> {
        let (found, text) = match read(path) {
            Ok(text) => (path.to_owned(), text),
            Err(reason) if path.contains('/') => return Err(SourceError::Unreadable(reason)),
            Err(reason) => DIRECTORIES
                .iter()
                .map(|directory| format!("{directory}/{path}"))
                .find_map(|path| Some((path.clone(), read(&path).ok()?)))
                .ok_or(SourceError::Unreadable(reason))?,
        };
        let (directory, name) = found.rsplit_once('/').unwrap_or(("", &found));
        let own = if directory.is_empty() { ".".to_owned() } else { directory.to_owned() };
        let find = |files: &[String]| {
            let read = |directory: &str, file: &str| match file.starts_with('/') {
                true => read(file).ok(),
                false => read(&format!("{directory}/{file}")).ok(),
            };
            [own.as_str(), "."].into_iter().chain(DIRECTORIES).find_map(|directory| {
                files.iter().find_map(|file| Some((file.clone(), read(directory, file)?)))
            })
        };
        let source = Self::new(name, text, find).map_err(SourceError::Missing)?;
        Ok(Self { path: (path != source.name).then(|| path.to_owned()), ..source })
    }

    /// A script with its modules, and with the files that it reads as Lua. `find` returns the first one of several
    /// files that exists: its name and text. Names that a script computes when it runs are not known here.
    ///
    /// # Errors
    /// Modules that were not found.
    pub fn new(
        name: &str,
        text: String,
        mut find: impl FnMut(&[String]) -> Option<(String, String)>,
    ) -> Result<Self, Vec<MissingModule>> {
        let mut modules: Vec<Module> = Vec::new();
        let mut missing = Vec::new();
        let mut wanted = required(name, &text);
        while let Some(one) = wanted.pop() {
            let known = modules.iter().any(|known| known.name == one.name);
            if known || PROVIDED.contains(&one.name.as_str()) {
                continue;
            }
            match find(&one.files()) {
                Some((file, text)) => {
                    wanted.extend(required(&file, &text));
                    modules.push(Module { name: one.name, file, text });
                }
                // It may be that of another directory, which the script computes.
                None if one.is_file => {}
                None => {
                    let Required { name, by: file, line, .. } = one;
                    missing.push(MissingModule { name, file, line });
                }
            }
        }
        modules.sort_by(|a, b| a.name.cmp(&b.name));
        missing.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        let version = Version::default();
        let source = Self { name: name.to_owned(), path: None, text, modules, version };
        if missing.is_empty() { Ok(source) } else { Err(missing) }
    }
}

/// Modules that LuaJIT has.
const PROVIDED: [&str; 18] = [
    "ffi",
    "bit",
    "jit",
    "jit.util",
    "jit.opt",
    "jit.profile",
    "string",
    "string.buffer",
    "table",
    "table.new",
    "table.clear",
    "math",
    "io",
    "os",
    "debug",
    "coroutine",
    "package",
    "_G",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_modules_are_included() {
        let find = |files: &[String]| {
            let text = match files[0].as_str() {
                "a.lua" => "require('b') require 'ffi' dofile(dir .. 'c.lua')",
                "b.lua" => "require('a')",
                "c.lua" => "require('b') dofile('missing.lua')",
                _ => return None,
            };
            Some((files[0].clone(), text.to_owned()))
        };
        let source = Source::new("s.lua", "require 'a'".to_owned(), find).unwrap();
        let names: Vec<&str> = source.modules.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c.lua"]);
    }

    #[test]
    fn modules_of_luajit_are_provided() {
        let text: String = PROVIDED.map(|name| format!("assert(require('{name}'))\n")).concat();
        let source = Source::new("s.lua", text, |_| None).unwrap();
        crate::inspect(&source, crate::Driver::MySql, &crate::Options::new()).unwrap();
    }

    #[test]
    fn script_and_modules_are_searched_for_in_the_directories_of_sysbench() {
        let read = |path: &str| match path {
            "/usr/share/sysbench/s.lua" => Ok("require 'a.b'".to_owned()),
            "/usr/share/sysbench/a/b.lua" => Ok("return 1".to_owned()),
            _ => Err(format!("{path} does not exist")),
        };
        let source = Source::find("s.lua", read).unwrap();
        assert_eq!((source.name.as_str(), source.modules.len()), ("s.lua", 1));
        assert_eq!(source.path, None);
        let error = Source::find("./s.lua", read).unwrap_err();
        assert_eq!(error.to_string(), "./s.lua does not exist");
    }

    #[test]
    fn modules_are_searched_for_next_to_the_script_and_in_the_current_directory() {
        let read = |path: &str| match path {
            "my/s.lua" => Ok("require 'one' require 'two' require 'lib'".to_owned()),
            "my/one.lua" | "./two.lua" | "my/lib/init.lua" => Ok(format!("return '{path}'")),
            "./one.lua" | "./lib.lua" => Ok("error('not this one')".to_owned()),
            _ => Err(format!("{path} does not exist")),
        };
        let source = Source::find("my/s.lua", read).unwrap();
        assert_eq!(source.path.as_deref(), Some("my/s.lua"));
        let found: Vec<(&str, &str)> =
            source.modules.iter().map(|one| (&*one.file, &*one.text)).collect();
        let expected = [
            ("lib/init.lua", "return 'my/lib/init.lua'"),
            ("one.lua", "return 'my/one.lua'"),
            ("two.lua", "return './two.lua'"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn missing_module_has_file_and_line() {
        let missing = Source::new("s.lua", "\nrequire 'a'".to_owned(), |_| None).unwrap_err();
        let expected = MissingModule { name: "a".to_owned(), file: "s.lua".to_owned(), line: 2 };
        assert_eq!(missing, [expected]);
    }
}
