//! A script with all modules that it requires.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::version::Version;

/// A script and its modules. Complete: a run needs no files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The name in messages, such as `oltp_read_only.lua`.
    pub name: String,
    /// The text of the script.
    pub text: String,
    /// The modules that it or another module requires.
    pub modules: Vec<Module>,
    /// The version of sysbench that it is written for.
    #[serde(default, skip_serializing_if = "Version::is_default")]
    pub version: Version,
}

/// A required module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// The name in `require`.
    pub name: String,
    /// The name of its file in messages.
    pub file: String,
    /// Its text.
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

/// Where scripts and modules are searched for, after the directory of the script.
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
                write!(f, "; searched next to the script, and in {}", DIRECTORIES.join(" and "))
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
        let find = |module: &str| {
            let file = format!("{}.lua", module.replace('.', "/"));
            std::iter::once(own.as_str()).chain(DIRECTORIES).find_map(|directory| {
                Some((file.clone(), read(&format!("{directory}/{file}")).ok()?))
            })
        };
        Self::new(name, text, find).map_err(SourceError::Missing)
    }

    /// A script with the modules that `find` returns for their names: file and text. Names that a script
    /// computes when it runs are not known here.
    ///
    /// # Errors
    /// Modules that were not found.
    pub fn new(
        name: &str,
        text: String,
        mut find: impl FnMut(&str) -> Option<(String, String)>,
    ) -> Result<Self, Vec<MissingModule>> {
        let mut modules: Vec<Module> = Vec::new();
        let mut missing = Vec::new();
        let mut wanted = required(name, &text);
        while let Some(module) = wanted.pop() {
            let known = modules.iter().any(|known| known.name == module.name);
            if known || PROVIDED.contains(&module.name.as_str()) {
                continue;
            }
            match find(&module.name) {
                Some((file, text)) => {
                    wanted.extend(required(&file, &text));
                    modules.push(Module { name: module.name, file, text });
                }
                None => missing.push(module),
            }
        }
        modules.sort_by(|a, b| a.name.cmp(&b.name));
        missing.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        let version = Version::default();
        let source = Self { name: name.to_owned(), text, modules, version };
        if missing.is_empty() { Ok(source) } else { Err(missing) }
    }
}

/// Modules that LuaJIT has.
const PROVIDED: [&str; 12] = [
    "ffi",
    "bit",
    "jit",
    "jit.util",
    "jit.opt",
    "string",
    "table",
    "math",
    "io",
    "os",
    "debug",
    "coroutine",
];

/// The modules in `require "NAME"` and `require("NAME")`, where this is not in a line comment.
fn required(file: &str, text: &str) -> Vec<MissingModule> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split("--").next().unwrap_or_default();
        let mut rest = code;
        while let Some(at) = rest.find("require") {
            let before = rest[..at].chars().next_back();
            rest = &rest[at + "require".len()..];
            if before.is_some_and(|c| c.is_alphanumeric() || "_.:".contains(c)) {
                continue;
            }
            let argument = rest.trim_start().trim_start_matches('(').trim_start();
            let Some(quote @ ('"' | '\'')) = argument.chars().next() else { continue };
            let Some((name, _)) = argument[1..].split_once(quote) else { continue };
            found.push(MissingModule {
                name: name.to_owned(),
                file: file.to_owned(),
                line: number,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_modules_are_found_with_their_lines() {
        let text =
            "require(\"one\")\n-- require 'two'\nlocal x = require 'three.x'\nmy.require('no')";
        let found: Vec<(String, u32)> =
            required("a.lua", text).into_iter().map(|m| (m.name, m.line)).collect();
        assert_eq!(found, [("one".to_owned(), 1), ("three.x".to_owned(), 3)]);
    }

    #[test]
    fn modules_of_modules_are_included() {
        let find = |name: &str| match name {
            "a" => Some(("a.lua".to_owned(), "require('b') require 'ffi'".to_owned())),
            "b" => Some(("b.lua".to_owned(), "require('a')".to_owned())),
            _ => None,
        };
        let source = Source::new("s.lua", "require 'a'".to_owned(), find).unwrap();
        let names: Vec<&str> = source.modules.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
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
        let error = Source::find("./s.lua", read).unwrap_err();
        assert_eq!(error.to_string(), "./s.lua does not exist");
    }

    #[test]
    fn missing_module_has_file_and_line() {
        let missing = Source::new("s.lua", "\nrequire 'a'".to_owned(), |_| None).unwrap_err();
        let expected = MissingModule { name: "a".to_owned(), file: "s.lua".to_owned(), line: 2 };
        assert_eq!(missing, [expected]);
    }
}
