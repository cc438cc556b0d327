use crate::effective::{Family, RecordedCompiler};

/// What a compiler says of itself in an object: name, version, and often its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) compiler: RecordedCompiler,
    /// What gcc says that it compiled: `C17`, `C++17`, `GIMPLE`.
    pub(crate) language: Option<String>,
    /// The command line as recorded; `None` where the compiler did not write it down.
    pub(crate) flags: Option<Vec<String>>,
}

impl Producer {
    /// From `DW_AT_producer`, or a line of `.GCC.command.line` as gcc writes it.
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

    /// From what clang's `-frecord-command-line` writes: the command line alone.
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

/// `C++17 8.5.0 20210514 (Red Hat 8.5.0-26) -mtune=generic -O2`, or `AS 2.40`.
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
        // With -gno-record-gcc-switches not even the default CPU is there.
        flags: (!flags.is_empty()).then_some(flags),
    }
}

/// `17.0.6 (https://github.com/llvm/llvm-project 6009…) /usr/bin/clang-17 -g -O2`.
fn clang(rest: &str) -> Producer {
    let version_end = rest.find(' ').unwrap_or(rest.len());
    let (version, mut rest) = rest.split_at(version_end);
    rest = rest.trim_start();
    // The place that it was compiled from; there may be parentheses in parentheses.
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

/// clang writes `-D X=1` for `-DX=1`.
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

/// Words that are separated by blanks; a backslash keeps the next character as it is.
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
    fn reads_gcc_with_and_without_a_packagers_words() {
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
    fn gcc_that_was_told_not_to_record_has_no_flags() {
        assert_eq!(parsed("GNU C17 12.2.0").2, None);
    }

    #[test]
    fn an_assembler_is_no_compiler() {
        assert_eq!(parsed("GNU AS 2.40").0, "assembler 2.40");
        assert!(!Producer::parse("GNU AS 2.40").compiler.family.is_checked());
    }

    #[test]
    fn reads_clang_with_blanks_and_parentheses() {
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
    fn knows_rustc_and_leaves_others_as_they_are() {
        assert_eq!(parsed("clang LLVM (rustc version 1.95.0 (1 2))").0, "rustc 1.95.0 (1 2");
        assert_eq!(parsed("Go cmd/compile go1.22").0, "other Go cmd/compile go1.22");
        assert_eq!(parsed("").0, "other ");
    }
}
