//! Parsing and interpretation of recorded command lines.

mod interpret;

use crate::effective::{Family, RecordedCompiler};

pub(crate) use interpret::{CommandContext, interpret};

/// Options with their value in the next word, which vary between files or directories but do not
/// affect the code.
const PLACES_APART: [&str; 22] = [
    "-o",
    "-I",
    "-L",
    "-MF",
    "-MT",
    "-MQ",
    "-MJ",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-include",
    "-imacros",
    "-isysroot",
    "-B",
    "-dumpdir",
    "-dumpbase",
    "-dumpbase-ext",
    "-auxbase-strip",
    "-imultiarch",
    "-working-directory",
    "-resource-dir",
    "-imultilib",
];

/// Options that contain such a value, or select the compilation step.
const PLACES_TOGETHER: [&str; 12] = [
    "-I",
    "-L",
    "-o",
    "-MF",
    "-MT",
    "-MQ",
    "-isystem",
    "-iquote",
    "-idirafter",
    "--sysroot=",
    "-B",
    "-resource-dir=",
];

/// Options that affect only files and messages.
const SILENT: [&str; 13] = [
    "-c",
    "-S",
    "-E",
    "-MD",
    "-MMD",
    "-MP",
    "-MG",
    "-M",
    "-MM",
    "-pipe",
    "-v",
    "-###",
    "-save-temps",
];

/// Options with their value in the next word, to be joined with it.
const JOINED: [&str; 9] =
    ["-D", "-U", "-x", "-Xclang", "-mllvm", "--param", "-arch", "-target", "-std"];

/// Options whose value is a path or seed of this build.
const MAPS: [&str; 5] = [
    "-ffile-prefix-map=",
    "-fdebug-prefix-map=",
    "-fmacro-prefix-map=",
    "-frandom-seed=",
    "-fprofile-prefix-map=",
];

/// Normalizes a command line: keeps flags that affect the code, without file names and duplicates,
/// each with its value in one word. Of duplicates, the last one is kept, since later flags override
/// earlier ones.
pub(crate) fn normal(flags: &[String]) -> Vec<String> {
    let mut kept: Vec<String> = Vec::with_capacity(flags.len());
    let mut words = flags.iter();
    while let Some(word) = words.next() {
        if PLACES_APART.contains(&word.as_str()) {
            words.next();
        } else if JOINED.contains(&word.as_str()) {
            let value = words.next().map_or("", String::as_str);
            kept.push(match word.as_str() {
                "-D" | "-U" => format!("{word}{value}"),
                "-x" | "-Xclang" | "-mllvm" | "-arch" | "-target" => format!("{word} {value}"),
                _ => format!("{word}={value}"),
            });
        } else if let Some(map) = MAPS.iter().find(|map| word.starts_with(**map)) {
            kept.push(format!("{map}…"));
        } else if word.starts_with('-') && !is_silent(word) {
            kept.push(word.clone());
        }
    }
    let mut unique: Vec<String> = Vec::with_capacity(kept.len());
    for word in kept.into_iter().rev() {
        if !unique.contains(&word) {
            unique.push(word);
        }
    }
    unique.reverse();
    unique
}

fn is_silent(word: &str) -> bool {
    SILENT.contains(&word)
        || word == "-"
        || PLACES_TOGETHER.iter().any(|place| word.starts_with(place))
        || word.starts_with("-fdiagnostics-")
        || word.starts_with("-Wp,-M")
}

/// Whether [`super::interpret`] reads this flag; other flags are displayed unchanged.
pub(crate) fn has_meaning(flag: &str) -> bool {
    let prefixes = [
        "-O",
        "-g",
        "-flto",
        "-fno-lto",
        "-march=",
        "-mtune=",
        "-mcpu=",
        "-fomit-frame-pointer",
        "-fno-omit-frame-pointer",
        "-fstack-protector",
        "-fno-stack-protector",
        "-fPIC",
        "-fpic",
        "-fPIE",
        "-fpie",
        "-fno-pi",
        "-fno-PI",
        "-fprofile-",
        "-fauto-profile",
        "-fstack-clash",
        "-fno-stack-clash",
        "-fcf-protection",
        "-mbranch-protection",
        "-DNDEBUG",
        "-UNDEBUG",
        "-D_FORTIFY_SOURCE",
        "-U_FORTIFY_SOURCE",
        "-fltrans",
        "-ffat-lto",
        "-fno-fat-lto",
    ];
    let has_meaning = |flag: &str| prefixes.iter().any(|prefix| flag.starts_with(prefix));
    match flag.strip_prefix("-Wp,") {
        Some(options) => options.split(',').any(has_meaning),
        None => has_meaning(flag),
    }
}

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

    fn of(text: &str) -> String {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        normal(&words).join(" ")
    }

    #[test]
    fn file_names_are_removed() {
        assert_eq!(
            of("-O2 -I/a -I b -MD -MT x.o -MF x.d -o x.o -c a.c -isystem /y -pipe -fPIC"),
            "-O2 -fPIC"
        );
        assert_eq!(of("-O2 -o"), "-O2");
    }

    #[test]
    fn values_are_joined_and_paths_masked() {
        assert_eq!(of("-D X=1 --param a=1 -DY -U Z"), "-DX=1 --param=a=1 -DY -UZ");
        assert_eq!(of("-ffile-prefix-map=/build=."), "-ffile-prefix-map=…");
    }

    #[test]
    fn last_duplicate_is_kept() {
        assert_eq!(of("-O2 -g -O3 -O2 -g"), "-O3 -O2 -g");
    }

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
