//! The modules and files that the text of a script names.

/// A module or file that a script names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Required {
    /// Whether it is a file of `dofile` or `loadfile`, and not a module of `require`.
    pub is_file: bool,
    /// The name of the module or file.
    pub name: String,
    /// The file that names it.
    pub by: String,
    /// The line, from 1.
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
pub(crate) fn required(file: &str, text: &str) -> Vec<Required> {
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
    /// Passes this many bytes.
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
