//! Parsing and interpretation of recorded command lines.

use crate::effective::{
    Effective, Family, Fortify, LtoForm, Machine, Optimization, Position, Profile,
    RecordedCompiler, StackProtector,
};

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

/// Whether [`interpret`] reads this flag; other flags are displayed unchanged.
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

/// The context of a command line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommandContext<'a> {
    pub(crate) compiler: Option<&'a RecordedCompiler>,
    pub(crate) language: Option<&'a str>,
    pub(crate) machine: Machine,
    /// Whether macros are recorded; gcc does not record them.
    pub(crate) macros: bool,
}

/// Interprets a complete command line. For missing flags, the compiler's default is used if it is
/// the same on all systems.
pub(crate) fn interpret(context: CommandContext<'_>, flags: &[String]) -> Effective {
    let CommandContext { compiler, language, machine, macros } = context;
    let mut state = FlagState { machine, ..FlagState::default() };
    for flag in flags {
        state.apply(flag);
    }
    let found = state.found;
    let optimization = found.optimization.unwrap_or(Optimization::O0);
    let generated_by_link = state.ltrans || language == Some("GIMPLE");
    let lto = if generated_by_link {
        LtoForm::Linked
    } else {
        match (state.lto, state.fat) {
            (None, _) => LtoForm::None,
            (Some(LtoWord::Thin), _) => LtoForm::Thin,
            (Some(LtoWord::Full), true) => LtoForm::Fat,
            (Some(LtoWord::Full), false) => LtoForm::Slim,
        }
    };
    // Both compilers omit frame pointers in optimized code, but only on x86 is this the default
    // everywhere.
    let frame_pointers = found.frame_pointers.or(match (optimization, machine) {
        (Optimization::O0, _) => Some(true),
        (_, Machine::X86) => Some(false),
        (_, Machine::Arm | Machine::Other) => None,
    });
    let is_clang = compiler.is_some_and(|compiler| compiler.family == Family::Clang);
    // gcc records the instruction set on x86 and where it was specified; clang only where it was.
    let is_recorded = !is_clang && machine == Machine::X86;
    Effective {
        compiler: compiler.cloned(),
        language: language.map(str::to_owned),
        optimization: Some(optimization),
        lto: Some(lto),
        march: found.march.or_else(|| if is_recorded { None } else { machine.baseline() }),
        debug: Some(found.debug.unwrap_or(false)),
        frame_pointers,
        fortify: found.fortify.or(macros.then_some(Fortify::Off)),
        assertions: found.assertions.or(macros.then_some(true)),
        profile: Some(found.profile.unwrap_or(Profile::None)),
        ..found
    }
}

#[derive(Clone, Copy)]
enum LtoWord {
    Full,
    Thin,
}

/// The settings so far; a later flag overrides an earlier one.
#[derive(Default)]
struct FlagState {
    machine: Machine,
    lto: Option<LtoWord>,
    fat: bool,
    ltrans: bool,
    /// The other settings.
    found: Effective,
}

impl FlagState {
    fn apply(&mut self, flag: &str) {
        // Some distributions pass macros in this way.
        if let Some(options) = flag.strip_prefix("-Wp,") {
            let macros =
                options.split(',').filter(|it| it.starts_with("-D") || it.starts_with("-U"));
            macros.for_each(|option| self.apply(option));
            return;
        }
        let found = &mut self.found;
        match flag {
            "-flto" | "-flto=full" | "-flto=auto" | "-flto=jobserver" => {
                self.lto = Some(LtoWord::Full);
            }
            "-flto=thin" => self.lto = Some(LtoWord::Thin),
            "-fno-lto" => self.lto = None,
            "-ffat-lto-objects" => self.fat = true,
            "-fno-fat-lto-objects" => self.fat = false,
            "-fltrans" | "-fwpa" => self.ltrans = true,
            "-fomit-frame-pointer" => found.frame_pointers = Some(false),
            "-fno-omit-frame-pointer" => found.frame_pointers = Some(true),
            "-fno-stack-protector" => found.stack_protector = Some(StackProtector::Off),
            "-fstack-protector" => found.stack_protector = Some(StackProtector::Basic),
            "-fstack-protector-strong" => found.stack_protector = Some(StackProtector::Strong),
            "-fstack-protector-all" => found.stack_protector = Some(StackProtector::All),
            "-fstack-protector-explicit" => found.stack_protector = Some(StackProtector::Explicit),
            "-fstack-clash-protection" => found.stack_clash = Some(true),
            "-fno-stack-clash-protection" => found.stack_clash = Some(false),
            "-fcf-protection" => found.control_flow = Some(true),
            "-fPIC" | "-fpic" => found.position = Some(Position::Pic),
            "-fPIE" | "-fpie" => found.position = Some(Position::Pie),
            "-fno-PIC" | "-fno-pic" | "-fno-PIE" | "-fno-pie" => {
                found.position = Some(Position::Fixed);
            }
            "-DNDEBUG" => found.assertions = Some(false),
            "-UNDEBUG" => found.assertions = Some(true),
            "-U_FORTIFY_SOURCE" => found.fortify = Some(Fortify::Off),
            "-D_FORTIFY_SOURCE" => found.fortify = Some(Fortify::Level(1)),
            "-fno-profile-use" | "-fno-profile-generate" => found.profile = Some(Profile::None),
            _ => self.apply_with_value(flag),
        }
    }

    fn apply_with_value(&mut self, flag: &str) {
        let found = &mut self.found;
        if let Some(level) = flag.strip_prefix("-O") {
            found.optimization = level_of(level).or(found.optimization);
        } else if let Some(kind) = flag.strip_prefix("-g") {
            if let Some(debug) = debug_of(kind) {
                found.debug = Some(debug);
            }
        } else if flag.starts_with("-flto=") {
            // A number of jobs, or a value of a newer compiler.
            self.lto = Some(LtoWord::Full);
        } else if let Some(march) = flag.strip_prefix("-march=") {
            found.march = Some(march.to_owned());
        } else if let Some(mtune) = flag.strip_prefix("-mtune=") {
            found.mtune = Some(mtune.to_owned());
        } else if let Some(cpu) = flag.strip_prefix("-mcpu=") {
            // On Arm it sets both; on x86 it is a deprecated name of -mtune.
            if self.machine == Machine::Arm {
                found.march = Some(cpu.to_owned());
            }
            found.mtune = Some(cpu.to_owned());
        } else if let Some(value) = flag.strip_prefix("-fcf-protection=") {
            found.control_flow = Some(value != "none");
        } else if let Some(value) = flag.strip_prefix("-mbranch-protection=") {
            found.control_flow = Some(value != "none");
        } else if flag.starts_with("-DNDEBUG=") {
            found.assertions = Some(false);
        } else if let Some(value) = flag.strip_prefix("-D_FORTIFY_SOURCE=") {
            found.fortify = match value.parse() {
                Ok(0) => Some(Fortify::Off),
                Ok(level) => Some(Fortify::Level(level)),
                Err(_) => Some(Fortify::On),
            };
        } else if let Some(profile) = profile_of(flag) {
            found.profile = Some(profile);
        }
    }
}

/// Parses the level after `-O`. Numbers above 3 mean 3.
fn level_of(level: &str) -> Option<Optimization> {
    Some(match level {
        "" | "1" => Optimization::O1,
        "0" => Optimization::O0,
        "2" => Optimization::O2,
        "g" => Optimization::Og,
        "s" => Optimization::Os,
        "z" => Optimization::Oz,
        "fast" => Optimization::Ofast,
        _ => {
            level.parse::<u32>().ok()?;
            Optimization::O3
        }
    })
}

/// Whether a flag that begins with `-g` enables debug information; `None` for other flags.
fn debug_of(kind: &str) -> Option<bool> {
    let formats = ["", "1", "2", "3", "gdb", "gdb1", "gdb2", "gdb3", "line-tables-only", "mlt"];
    let is_format = kind.starts_with("dwarf") && !matches!(kind, "dwarf32" | "dwarf64");
    if kind == "0" || kind == "gdb0" {
        Some(false)
    } else if formats.contains(&kind) || is_format {
        Some(true)
    } else {
        None
    }
}

fn profile_of(flag: &str) -> Option<Profile> {
    let starts = |prefixes: &[&str]| {
        prefixes.iter().any(|prefix| flag == *prefix || flag.starts_with(&format!("{prefix}=")))
    };
    if starts(&["-fprofile-sample-use", "-fauto-profile"]) {
        Some(Profile::Samples)
    } else if starts(&["-fprofile-use", "-fprofile-instr-use"]) {
        Some(Profile::Use)
    } else if starts(&[
        "-fprofile-generate",
        "-fprofile-instr-generate",
        "-fcs-profile-generate",
        "-fprofile-arcs",
    ]) {
        Some(Profile::Generate)
    } else {
        None
    }
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

    fn settings(text: &str) -> Effective {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        interpret(context(false), &words)
    }

    fn context(macros: bool) -> CommandContext<'static> {
        CommandContext { compiler: None, language: None, machine: Machine::X86, macros }
    }

    #[test]
    fn last_optimization_level_wins() {
        assert_eq!(settings("-O3 -O2").optimization, Some(Optimization::O2));
        assert_eq!(settings("-O2 -O").optimization, Some(Optimization::O1));
        assert_eq!(settings("-O9").optimization, Some(Optimization::O3));
        assert_eq!(settings("-g").optimization, Some(Optimization::O0));
        assert_eq!(settings("-O2 -Obscure").optimization, Some(Optimization::O2));
    }

    #[test]
    fn instruction_set_without_a_flag_is_the_default_where_gcc_records_none() {
        let march = |machine: Machine, text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            interpret(CommandContext { machine, ..context(false) }, &words).march
        };
        assert_eq!(march(Machine::Arm, "-mlittle-endian -mabi=lp64").as_deref(), Some("armv8-a"));
        assert_eq!(march(Machine::Arm, "-march=armv8.2-a").as_deref(), Some("armv8.2-a"));
        assert_eq!(march(Machine::X86, "-O2"), None);
        assert_eq!(march(Machine::Other, "-O2"), None);
    }

    #[test]
    fn lto_form_follows_from_flags() {
        assert_eq!(settings("-O2").lto, Some(LtoForm::None));
        assert_eq!(settings("-flto -fno-lto").lto, Some(LtoForm::None));
        assert_eq!(settings("-flto=auto").lto, Some(LtoForm::Slim));
        assert_eq!(settings("-flto=4 -ffat-lto-objects").lto, Some(LtoForm::Fat));
        assert_eq!(settings("-flto=thin").lto, Some(LtoForm::Thin));
        assert_eq!(settings("-O2 -fltrans").lto, Some(LtoForm::Linked));
    }

    #[test]
    fn missing_macros_mean_off_only_if_macros_are_recorded() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let clang = |text: &str| interpret(context(true), &words(text));
        assert_eq!(settings("-O2").assertions, None);
        assert_eq!(settings("-O2").fortify, None);
        assert_eq!(clang("-O2").assertions, Some(true));
        assert_eq!(clang("-O2").fortify, Some(Fortify::Off));
        assert_eq!(clang("-DNDEBUG").assertions, Some(false));
        assert_eq!(clang("-DNDEBUG -UNDEBUG").assertions, Some(true));
        assert_eq!(clang("-D_FORTIFY_SOURCE=2").fortify, Some(Fortify::Level(2)));
        let fedora = clang("-Wp,-MMD,x.d -Wp,-U_FORTIFY_SOURCE,-D_FORTIFY_SOURCE=3 -Wp,-DNDEBUG");
        assert_eq!(fedora.fortify, Some(Fortify::Level(3)));
        assert_eq!(fedora.assertions, Some(false));
    }

    #[test]
    fn debug_information_is_distinguished_from_its_options() {
        for (flags, debug) in [
            ("-O2", false),
            ("-g", true),
            ("-ggdb3", true),
            ("-gdwarf-4", true),
            ("-g -g0", false),
            ("-gno-record-gcc-switches", false),
            ("-gsplit-dwarf", false),
            ("-grecord-gcc-switches", false),
        ] {
            assert_eq!(settings(flags).debug, Some(debug), "{flags}");
        }
    }

    #[test]
    fn profile_use_follows_from_flags() {
        assert_eq!(settings("-O2").profile, Some(Profile::None));
        assert_eq!(settings("-fprofile-use=/x").profile, Some(Profile::Use));
        assert_eq!(settings("-fprofile-generate").profile, Some(Profile::Generate));
        assert_eq!(settings("-fprofile-instr-use=/x").profile, Some(Profile::Use));
        assert_eq!(settings("-fprofile-sample-use=/x").profile, Some(Profile::Samples));
        assert_eq!(settings("-fprofile-partial-training").profile, Some(Profile::None));
    }
}
