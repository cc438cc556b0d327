use crate::effective::{
    Effective, Family, Fortify, LtoForm, Machine, Optimization, Position, Profile,
    RecordedCompiler, StackProtector,
};

/// The context of a command line.
#[derive(Clone, Copy, Debug)]
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
    let optimization = state.optimization.unwrap_or(Optimization::O0);
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
    let frame_pointers = state.frame_pointers.or(match (optimization, machine) {
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
        march: state.march.or_else(|| if is_recorded { None } else { machine.baseline() }),
        mtune: state.mtune,
        debug: Some(state.debug.unwrap_or(false)),
        frame_pointers,
        stack_protector: state.stack_protector,
        fortify: state.fortify.or(macros.then_some(Fortify::Off)),
        stack_clash: state.stack_clash,
        control_flow: state.control_flow,
        position: state.position,
        assertions: state.ndebug.map(|ndebug| !ndebug).or(macros.then_some(true)),
        profile: Some(state.profile.unwrap_or(Profile::None)),
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
    optimization: Option<Optimization>,
    lto: Option<LtoWord>,
    fat: bool,
    ltrans: bool,
    march: Option<String>,
    mtune: Option<String>,
    debug: Option<bool>,
    frame_pointers: Option<bool>,
    stack_protector: Option<StackProtector>,
    fortify: Option<Fortify>,
    stack_clash: Option<bool>,
    control_flow: Option<bool>,
    position: Option<Position>,
    ndebug: Option<bool>,
    profile: Option<Profile>,
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
        match flag {
            "-flto" | "-flto=full" | "-flto=auto" | "-flto=jobserver" => {
                self.lto = Some(LtoWord::Full);
            }
            "-flto=thin" => self.lto = Some(LtoWord::Thin),
            "-fno-lto" => self.lto = None,
            "-ffat-lto-objects" => self.fat = true,
            "-fno-fat-lto-objects" => self.fat = false,
            "-fltrans" | "-fwpa" => self.ltrans = true,
            "-fomit-frame-pointer" => self.frame_pointers = Some(false),
            "-fno-omit-frame-pointer" => self.frame_pointers = Some(true),
            "-fno-stack-protector" => self.stack_protector = Some(StackProtector::Off),
            "-fstack-protector" => self.stack_protector = Some(StackProtector::Basic),
            "-fstack-protector-strong" => self.stack_protector = Some(StackProtector::Strong),
            "-fstack-protector-all" => self.stack_protector = Some(StackProtector::All),
            "-fstack-protector-explicit" => self.stack_protector = Some(StackProtector::Explicit),
            "-fstack-clash-protection" => self.stack_clash = Some(true),
            "-fno-stack-clash-protection" => self.stack_clash = Some(false),
            "-fcf-protection" => self.control_flow = Some(true),
            "-fPIC" | "-fpic" => self.position = Some(Position::Pic),
            "-fPIE" | "-fpie" => self.position = Some(Position::Pie),
            "-fno-PIC" | "-fno-pic" | "-fno-PIE" | "-fno-pie" => {
                self.position = Some(Position::Fixed);
            }
            "-DNDEBUG" => self.ndebug = Some(true),
            "-UNDEBUG" => self.ndebug = Some(false),
            "-U_FORTIFY_SOURCE" => self.fortify = Some(Fortify::Off),
            "-D_FORTIFY_SOURCE" => self.fortify = Some(Fortify::Level(1)),
            "-fno-profile-use" | "-fno-profile-generate" => self.profile = Some(Profile::None),
            _ => self.apply_with_value(flag),
        }
    }

    fn apply_with_value(&mut self, flag: &str) {
        if let Some(level) = flag.strip_prefix("-O") {
            self.optimization = level_of(level).or(self.optimization);
        } else if let Some(kind) = flag.strip_prefix("-g") {
            if let Some(debug) = debug_of(kind) {
                self.debug = Some(debug);
            }
        } else if flag.starts_with("-flto=") {
            // A number of jobs, or a value of a newer compiler.
            self.lto = Some(LtoWord::Full);
        } else if let Some(march) = flag.strip_prefix("-march=") {
            self.march = Some(march.to_owned());
        } else if let Some(mtune) = flag.strip_prefix("-mtune=") {
            self.mtune = Some(mtune.to_owned());
        } else if let Some(cpu) = flag.strip_prefix("-mcpu=") {
            // On Arm it sets both; on x86 it is a deprecated name of -mtune.
            if self.machine == Machine::Arm {
                self.march = Some(cpu.to_owned());
            }
            self.mtune = Some(cpu.to_owned());
        } else if let Some(value) = flag.strip_prefix("-fcf-protection=") {
            self.control_flow = Some(value != "none");
        } else if let Some(value) = flag.strip_prefix("-mbranch-protection=") {
            self.control_flow = Some(value != "none");
        } else if flag.starts_with("-DNDEBUG=") {
            self.ndebug = Some(true);
        } else if let Some(value) = flag.strip_prefix("-D_FORTIFY_SOURCE=") {
            self.fortify = match value.parse() {
                Ok(0) => Some(Fortify::Off),
                Ok(level) => Some(Fortify::Level(level)),
                Err(_) => Some(Fortify::On),
            };
        } else if let Some(profile) = profile_of(flag) {
            self.profile = Some(profile);
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

    fn of(text: &str) -> Effective {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        interpret(context(false), &words)
    }

    fn context(macros: bool) -> CommandContext<'static> {
        CommandContext { compiler: None, language: None, machine: Machine::X86, macros }
    }

    #[test]
    fn last_optimization_level_wins() {
        assert_eq!(of("-O3 -O2").optimization, Some(Optimization::O2));
        assert_eq!(of("-O2 -O").optimization, Some(Optimization::O1));
        assert_eq!(of("-O9").optimization, Some(Optimization::O3));
        assert_eq!(of("-g").optimization, Some(Optimization::O0));
        assert_eq!(of("-O2 -Obscure").optimization, Some(Optimization::O2));
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
        assert_eq!(of("-O2").lto, Some(LtoForm::None));
        assert_eq!(of("-flto -fno-lto").lto, Some(LtoForm::None));
        assert_eq!(of("-flto=auto").lto, Some(LtoForm::Slim));
        assert_eq!(of("-flto=4 -ffat-lto-objects").lto, Some(LtoForm::Fat));
        assert_eq!(of("-flto=thin").lto, Some(LtoForm::Thin));
        assert_eq!(of("-O2 -fltrans").lto, Some(LtoForm::Linked));
    }

    #[test]
    fn missing_macros_mean_off_only_if_macros_are_recorded() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let clang = |text: &str| interpret(context(true), &words(text));
        assert_eq!(of("-O2").assertions, None);
        assert_eq!(of("-O2").fortify, None);
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
            assert_eq!(of(flags).debug, Some(debug), "{flags}");
        }
    }

    #[test]
    fn profile_use_follows_from_flags() {
        assert_eq!(of("-O2").profile, Some(Profile::None));
        assert_eq!(of("-fprofile-use=/x").profile, Some(Profile::Use));
        assert_eq!(of("-fprofile-generate").profile, Some(Profile::Generate));
        assert_eq!(of("-fprofile-instr-use=/x").profile, Some(Profile::Use));
        assert_eq!(of("-fprofile-sample-use=/x").profile, Some(Profile::Samples));
        assert_eq!(of("-fprofile-partial-training").profile, Some(Profile::None));
    }
}
