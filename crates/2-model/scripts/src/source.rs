//! A script with all modules that it requires.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A script and its modules. Complete: a run needs no files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub name: String,
    /// The path as it was given, if it is another one than the name. Scripts see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its text as of [`text_of`](crate::text_of).
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
    pub name: String,
    /// The file with the `require`.
    pub file: String,
    pub line: u32,
}

/// Where scripts and modules are searched for, after the directory of the script and the current one.
const DIRECTORIES: [&str; 2] = ["/usr/local/share/sysbench", "/usr/share/sysbench"];

/// Why a script cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The script itself, with the reason.
    Unreadable(String),
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

dbdyno_types::words! {
    /// The version of sysbench that a script is written for.
    #[derive(Default)]
    Version {
        /// 1.0, which also knows the names of 0.5.
        #[default]
        V1_0 = "1.0",
        /// 1.1, which has the Zipfian distribution.
        V1_1 = "1.1",
    }
}

impl Version {
    /// Whether it is the default, for smaller files.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The name of the release that scripts see.
    pub(crate) const fn release(self) -> &'static str {
        match self {
            Self::V1_0 => "1.0.20",
            Self::V1_1 => "1.1.0",
        }
    }
}

/// A module or file that a script names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Required {
    /// Whether it is a file of `dofile` or `loadfile`, and not a module of `require`.
    pub is_file: bool,
    pub name: String,
    pub by: String,
    pub line: u32,
}

impl Required {
    /// Names of files that it may have, the most specific first.
    pub fn files(&self) -> Vec<String> {
        if self.is_file {
            return vec![self.name.clone()];
        }
        let path = self.name.replace('.', "/");
        vec![format!("{path}.lua"), format!("{path}/init.lua")]
    }
}

/// The modules in `require("NAME")`, and the files in `dofile("NAME")` and `dofile(DIRECTORY .. "NAME")`, also of
/// `loadfile`. Names that a script computes in other ways are not known.
fn required(file: &str, text: &str) -> Vec<Required> {
    let lexed: Vec<(u32, Token<'_>)> = Lexer { rest: text, line: 1 }.collect();
    let tokens: Vec<Token<'_>> = lexed.iter().map(|(_, token)| *token).collect();
    let mut found = Vec::new();
    for (at, (line, token)) in lexed.iter().enumerate() {
        let is_file = match token {
            Token::Word("require") => false,
            Token::Word("dofile" | "loadfile") => true,
            _ => continue,
        };
        let name = match first_argument(&tokens[at + 1..]) {
            _ if is_field(&tokens[..at]) => continue,
            [Token::Text(name)] => *name,
            // The directory may end with the slash, or the name begin with it.
            [.., Token::Other('.'), Token::Text(name)] if is_file => name.trim_start_matches('/'),
            _ => continue,
        };
        let (name, by) = (name.to_owned(), file.to_owned());
        found.push(Required { is_file, name, by, line: *line });
    }
    found
}

/// Whether a name after these tokens is that of a field or method.
fn is_field(before: &[Token<'_>]) -> bool {
    let is_concatenated = matches!(before, [.., Token::Other('.'), Token::Other('.')]);
    !is_concatenated && matches!(before, [.., Token::Other('.' | ':')])
}

/// The first argument of a call, whose tokens follow the function's name.
fn first_argument<'t, 'a>(tokens: &'t [Token<'a>]) -> &'t [Token<'a>] {
    match tokens {
        [Token::Text(_), ..] => &tokens[..1],
        [Token::Other('('), rest @ ..] => {
            let mut depth = 0;
            let is_end = |token: &Token<'_>| {
                match token {
                    Token::Other('(') => depth += 1,
                    Token::Other(',') => return depth == 0,
                    Token::Other(')') if depth == 0 => return true,
                    Token::Other(')') => depth -= 1,
                    _ => {}
                }
                false
            };
            let end = rest.iter().take(LONGEST_ARGUMENT).position(is_end);
            &rest[..end.unwrap_or(0)]
        }
        _ => &[],
    }
}

/// Tokens of the longest argument in which a name is looked for.
const LONGEST_ARGUMENT: usize = 100;

/// A part of Lua text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A name, a keyword or a number.
    Word(&'a str),
    /// The content of a string, in which escapes are not replaced.
    Text(&'a str),
    /// A character of an operator.
    Other(char),
}

/// Reads tokens with their lines; comments are left out.
struct Lexer<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Lexer<'a> {
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.line += taken.matches('\n').count() as u32;
        self.rest = rest;
        taken
    }

    fn skip_blanks_and_comments(&mut self) {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.take(blank);
            let Some(comment) = self.rest.strip_prefix("--") else { return };
            let length = match long_bracket(comment) {
                Some((_, length)) => length,
                None => comment.find('\n').unwrap_or(comment.len()),
            };
            self.take("--".len() + length);
        }
    }
}

impl<'a> Iterator for Lexer<'a> {
    type Item = (u32, Token<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.skip_blanks_and_comments();
        let first = self.rest.chars().next()?;
        let line = self.line;
        let token = if let Some((text, length)) = long_bracket(self.rest) {
            self.take(length);
            Token::Text(text)
        } else if first == '"' || first == '\'' {
            let length = quoted(self.rest, first);
            let text = self.take(length);
            Token::Text(text[1..].strip_suffix(first).unwrap_or(&text[1..]))
        } else if is_of_word(first) {
            let length = self.rest.find(|c| !is_of_word(c)).unwrap_or(self.rest.len());
            Token::Word(self.take(length))
        } else {
            self.take(first.len_utf8());
            Token::Other(first)
        };
        Some((line, token))
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The content and the length of `[[…]]`, `[=[…]=]` and so on at the start of the text.
fn long_bracket(text: &str) -> Option<(&str, usize)> {
    let inside = text.strip_prefix('[')?;
    let level = inside.len() - inside.trim_start_matches('=').len();
    let content = inside[level..].strip_prefix('[')?;
    let end = format!("]{}]", "=".repeat(level));
    let start = text.len() - content.len();
    match content.find(&end) {
        Some(length) => Some((&content[..length], start + length + end.len())),
        None => Some((content, text.len())),
    }
}

/// The length of the string in quotes at the start of the text, which ends with its line at the latest.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\n' => return at,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

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

    fn names(text: &str) -> Vec<(bool, String, u32)> {
        required("a.lua", text).into_iter().map(|one| (one.is_file, one.name, one.line)).collect()
    }

    fn modules(text: &str) -> Vec<(String, u32)> {
        let all = names(text).into_iter().filter(|(is_file, ..)| !is_file);
        all.map(|(_, name, line)| (name, line)).collect()
    }

    #[test]
    fn required_modules_are_found_with_their_lines() {
        let text = "require(\"one\")\n-- require 'two'\nlocal x = require 'three.x'\nmy.require('no')\n\
             require('tpcc_' .. part)";
        assert_eq!(modules(text), [("one".to_owned(), 1), ("three.x".to_owned(), 3)]);
    }

    #[test]
    fn comments_and_strings_require_nothing() {
        let text = "--[[ require('a')\nrequire('b') ]] require('c')\n--[==[ ]] require('d') ]==]\n\
                    x = 'require(\"e\")' y = [[\nrequire('f')]] z = \"\\\" -- \" require [[g]]\n\
                    x = '--' .. require('h')";
        let expected = [("c", 2), ("g", 5), ("h", 6)];
        assert_eq!(modules(text), expected.map(|(name, line)| (name.to_owned(), line)));
    }

    #[test]
    fn files_are_found_with_and_without_a_computed_directory() {
        let text = "dofile('a.lua') dofile(path .. \"b.lua\") loadfile(f('x', 1) .. '/c.lua', 't')\n\
                    dofile(name) dofile('d' .. name) loadfile \"e.lua\" f(dofile)";
        let found: Vec<(bool, String)> =
            names(text).into_iter().map(|(is_file, name, _)| (is_file, name)).collect();
        let expected = ["a.lua", "b.lua", "c.lua", "e.lua"];
        assert_eq!(found, expected.map(|name| (true, name.to_owned())));
    }

    #[test]
    fn text_of_any_fragments_is_read() {
        const FRAGMENTS: [&str; 17] = [
            "[", "]", "=", "[[", "]]", "\"", "'", "\\", "(", ")", ",", ".", "\n", "--", "é",
            "require", "dofile",
        ];
        let mut state = 1_u64;
        for _ in 0..5000 {
            let mut text = String::new();
            for _ in 0..30 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(FRAGMENTS[(state >> 33) as usize % FRAGMENTS.len()]);
            }
            let lines = text.lines().count() as u32;
            assert!(names(&text).iter().all(|(.., line)| (1..=lines).contains(line)), "{text}");
        }
    }
}
