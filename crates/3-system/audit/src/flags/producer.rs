use crate::effective::{Family, RecordedCompiler};

/// The producer recorded in an object: compiler, version, and often the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) compiler: RecordedCompiler,
    /// The source language, as recorded by gcc: `C17`, `C++17`, `GIMPLE`.
    pub(crate) language: Option<String>,
    /// The command line as recorded; `None` if not recorded.
    pub(crate) flags: Option<Vec<String>>,
}

impl Producer {
    /// Parses `DW_AT_producer`, or a line of `.GCC.command.line` as written by gcc.
    pub(crate) fn parse(text: &str) -> Self {
        if let Some(rest) = text.strip_prefix("GNU ") {
            return gnu(rest);
        }
        if text.contains("(rustc version ") {
            let version = between(text, "(rustc version ", ")").unwrap_or_default();
            return Self::without_flags(Family::Rustc, version);
        }
        match text.find("clang version ") {
            Some(start) => clang(&text[start + "clang version ".len()..]),
            None => Self::without_flags(Family::Other, text),
        }
    }

    /// Parses a line written by clang's `-frecord-command-line`: only the command line.
    pub(crate) fn of_clang_command(text: &str) -> Option<Vec<String>> {
        let mut words = split_escaped(text);
        if words.is_empty() || !words[0].contains("clang") {
            return None;
        }
        words.remove(0);
        Some(joined(words))
    }

    fn without_flags(family: Family, version: &str) -> Self {
        let compiler = RecordedCompiler { family, version: version.trim().to_owned() };
        Self { compiler, language: None, flags: None }
    }
}

/// Parses `C++17 8.5.0 20210514 (Red Hat 8.5.0-26) -mtune=generic -O2`, or `AS 2.40`.
fn gnu(rest: &str) -> Producer {
    let mut words = rest.split(' ').filter(|word| !word.is_empty()).peekable();
    let language = words.next().unwrap_or_default();
    let version = words.next().unwrap_or_default();
    if language == "AS" {
        return Producer::without_flags(Family::Assembler, version);
    }
    while words.next_if(|word| !word.starts_with('-')).is_some() {}
    let flags: Vec<String> = words.map(str::to_owned).collect();
    Producer {
        compiler: RecordedCompiler { family: Family::Gcc, version: version.to_owned() },
        language: Some(language.to_owned()),
        // With -gno-record-gcc-switches, not even the default CPU is recorded.
        flags: (!flags.is_empty()).then_some(flags),
    }
}

/// Parses `17.0.6 (https://github.com/llvm/llvm-project 6009…) /usr/bin/clang-17 -g -O2`.
fn clang(rest: &str) -> Producer {
    let version_end = rest.find(' ').unwrap_or(rest.len());
    let (version, mut rest) = rest.split_at(version_end);
    rest = rest.trim_start();
    // The repository of the compiler's source; parentheses may be nested.
    while rest.starts_with('(') {
        let mut depth = 0_usize;
        let end = rest.find(|c| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        rest = end.map_or("", |end| rest[end + 1..].trim_start());
    }
    Producer {
        compiler: RecordedCompiler { family: Family::Clang, version: version.to_owned() },
        language: None,
        flags: Producer::of_clang_command(rest),
    }
}

/// Joins `-D X=1`, as written by clang, to `-DX=1`.
fn joined(words: Vec<String>) -> Vec<String> {
    let mut words = words.into_iter();
    let mut joined = Vec::with_capacity(words.len());
    while let Some(word) = words.next() {
        joined.push(match word.as_str() {
            "-D" | "-U" => word + &words.next().unwrap_or_default(),
            _ => word,
        });
    }
    joined
}

/// Splits at blanks; a backslash escapes the next character.
fn split_escaped(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut escaped = false;
    for c in text.chars() {
        match c {
            _ if escaped => {
                word.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            ' ' if word.is_empty() => {}
            ' ' => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = &text[text.find(start)? + start.len()..];
    Some(&rest[..rest.find(end)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, Option<String>, Option<String>) {
        let producer = Producer::parse(text);
        let flags = producer.flags.map(|flags| flags.join("|"));
        (producer.compiler.to_string(), producer.language, flags)
    }

    #[test]
    fn gcc_producer_is_parsed_with_and_without_vendor() {
        let expected =
            |language: &str, flags: &str| (Some(language.to_owned()), Some(flags.to_owned()));
        let (compiler, language, flags) =
            parsed("GNU C17 12.2.0 -mtune=generic -march=x86-64 -g -O2");
        assert_eq!(compiler, "gcc 12.2.0");
        assert_eq!((language, flags), expected("C17", "-mtune=generic|-march=x86-64|-g|-O2"));
        let (compiler, language, flags) =
            parsed("GNU C++17 8.5.0 20210514 (Red Hat 8.5.0-26) -O3 --param x=1");
        assert_eq!(compiler, "gcc 8.5.0");
        assert_eq!((language, flags), expected("C++17", "-O3|--param|x=1"));
    }

    #[test]
    fn gcc_producer_without_recorded_switches_has_no_flags() {
        assert_eq!(parsed("GNU C17 12.2.0").2, None);
    }

    #[test]
    fn assembler_is_not_checked() {
        assert_eq!(parsed("GNU AS 2.40").0, "assembler 2.40");
        assert!(!Producer::parse("GNU AS 2.40").compiler.family.is_checked());
    }

    #[test]
    fn clang_producer_is_parsed_with_blanks_and_parentheses() {
        let (compiler, _, flags) =
            parsed("Debian clang version 14.0.6 /usr/lib/llvm-14/bin/clang -D X=a\\ b -O2 -c a.c");
        assert_eq!(compiler, "clang 14.0.6");
        assert_eq!(flags.as_deref(), Some("-DX=a b|-O2|-c|a.c"));
        let (compiler, _, flags) =
            parsed("clang version 17.0.6 (https://x/y (z) 6009) /opt/clang-17 -O1");
        assert_eq!(compiler, "clang 17.0.6");
        assert_eq!(flags.as_deref(), Some("-O1"));
        assert_eq!(parsed("clang version 17.0.6 (https://x/y 6009)").2, None);
        assert_eq!(parsed("clang version 17.0.6 (((").2, None);
    }

    #[test]
    fn rustc_is_recognized_and_others_are_kept_verbatim() {
        assert_eq!(parsed("clang LLVM (rustc version 1.95.0 (1 2))").0, "rustc 1.95.0 (1 2");
        assert_eq!(parsed("Go cmd/compile go1.22").0, "other Go cmd/compile go1.22");
        assert_eq!(parsed("").0, "other");
    }
}
