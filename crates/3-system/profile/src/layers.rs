//! Layers of servers: which part of a system a function belongs to, by rules.
//!
//! Rules are lines of four columns, separated by tabs: systems, the file's name with `*`, a regular expression for the
//! beginning of the function's name, or after `@` of its source file's, and the layer. A layer that ends in `!` is only
//! for samples in the function itself, not for what it calls; `^` leaves it to the caller. A function that is somewhere
//! between two source files has the layer of both, or that of a rule with `…` between their names.

use std::collections::HashMap;

use dbdyno_types::profile::{BETWEEN, Function, Stack};
use fancy_regex::{Regex, RegexBuilder, escape};

/// The layer of stacks that no rule knows.
pub const UNKNOWN: &str = "unknown";

/// Instead of a layer: the caller decides.
const CALLER: &str = "^";

/// The layer of other stacks in the kernel.
const KERNEL: &str = "kernel: other";

/// The systems that rules can name.
const SYSTEMS: [&str; 4] = ["mariadb", "mysql", "postgresql", "sqlite"];

/// Steps to find out whether a rule fits a name. A rule that needs more, of somebody else's run, fits none.
const MOST_STEPS: usize = 10_000;

const BUILT_IN: &str = include_str!("layers.tsv");

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {why}")]
pub struct LayersError {
    pub line: usize,
    pub why: String,
}

/// The rules for one system.
#[derive(Debug)]
pub struct Layers(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    module: Regex,
    pattern: Regex,
    of_source_file: bool,
    of_two_files: bool,
    layer: String,
    /// Whether what the function calls belongs to it, too.
    with_callees: bool,
}

impl Layers {
    /// The built-in rules for a system such as `mariadb`.
    pub fn of(system: &str) -> Self {
        Self::parse(BUILT_IN, system).expect("the built-in rules are valid")
    }

    /// These rules of the user for a system, then the built-in ones.
    pub fn with_own(rules: &str, system: &str) -> Result<Self, LayersError> {
        let mut all = Self::parse(rules, system)?;
        all.0.extend(Self::of(system).0);
        Ok(all)
    }

    /// Checks rules of the user for all systems.
    pub fn check(rules: &str) -> Result<(), LayersError> {
        let is_rule = |(_, text): &(usize, &str)| !text.is_empty() && !text.starts_with('#');
        for (line, text) in (1..).zip(rules.lines()).filter(is_rule) {
            let (systems, others) = text.split_once('\t').unwrap_or((text, ""));
            let unknown = systems.split(',').find(|one| *one != "*" && !SYSTEMS.contains(one));
            if let Some(unknown) = unknown {
                let why = format!("unknown system `{unknown}`: `*`, or of {}", SYSTEMS.join(", "));
                return Err(LayersError { line, why });
            }
            let failed = |error: LayersError| LayersError { line, ..error };
            Self::parse(&format!("*\t{others}"), "").map_err(failed)?;
            if others.ends_with(['\t', '!']) && others.trim_end_matches('!').ends_with('\t') {
                return Err(LayersError { line, why: "the layer is missing".to_owned() });
            }
        }
        Ok(())
    }

    /// The rules for a system in a text.
    pub fn parse(text: &str, system: &str) -> Result<Self, LayersError> {
        let mut rules = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let failed = |why: String| LayersError { line, why };
            let columns: Vec<&str> = text.split('\t').collect();
            let [systems, module, pattern, layer] = columns[..] else {
                return Err(failed(format!("{} columns instead of 4", columns.len())));
            };
            if systems != "*" && !systems.split(',').any(|one| one == system) {
                continue;
            }
            let expression = |text: String| {
                let regex = RegexBuilder::new(&text).backtrack_limit(MOST_STEPS).build();
                regex.map_err(|error| failed(error.to_string().replace('\n', " ")))
            };
            let (of_source_file, pattern) = match pattern.strip_prefix('@') {
                Some(pattern) => (true, pattern),
                None => (false, pattern),
            };
            let names: Vec<String> = module.split(',').map(glob).collect();
            rules.push(Rule {
                module: expression(format!("^(?:{})$", names.join("|")))?,
                pattern: expression(format!("^(?:{pattern})"))?,
                of_source_file,
                of_two_files: pattern.contains(BETWEEN),
                layer: layer.trim_end_matches('!').to_owned(),
                with_callees: !layer.ends_with('!'),
            });
        }
        Ok(Self(rules))
    }

    /// The layers of these stacks with their samples.
    pub fn add_up(&self, functions: &[Function], stacks: &[Stack]) -> HashMap<&str, u64> {
        let known: Vec<Option<&Rule>> = functions.iter().map(|one| self.rule(one)).collect();
        let mut sums = HashMap::new();
        for Stack { frames, samples } in stacks {
            let is_kernel = |frame: &u32| functions[*frame as usize].module == "[k]";
            let in_kernel = frames.first().is_some_and(is_kernel);
            let frames =
                frames.iter().enumerate().filter(|(_, frame)| !in_kernel || is_kernel(frame));
            let mut rules = frames.filter_map(|(depth, frame)| {
                let rule = known[*frame as usize]?;
                (depth == 0 || rule.with_callees).then_some(rule.layer.as_str())
            });
            let otherwise = if in_kernel { KERNEL } else { UNKNOWN };
            *sums.entry(rules.next().unwrap_or(otherwise)).or_default() += samples;
        }
        sums
    }

    /// The first rule for a function's name, or else for its source file.
    fn rule(&self, function: &Function) -> Option<&Rule> {
        let find = |of_source_file: bool, text: &str| {
            self.0.iter().find(|rule| {
                rule.of_source_file == of_source_file
                    && matches(&rule.module, &function.module)
                    && matches(&rule.pattern, text)
            })
        };
        // What is between two files is found by the first of them, unless a rule is for both.
        let by_source = |source: &str| {
            let last = source.split_once(BETWEEN).map(|(_, last)| last);
            find(true, source).filter(|rule| {
                let is_of = |last| find(true, last).is_some_and(|other| other.layer == rule.layer);
                rule.of_two_files || last.is_none_or(is_of)
            })
        };
        let by_name = function.name.as_deref().and_then(|name| find(false, name));
        by_name
            .or_else(|| by_source(function.source.as_deref()?))
            .filter(|rule| rule.layer != CALLER)
    }
}

fn matches(pattern: &Regex, text: &str) -> bool {
    // An error means that it took too many steps.
    pattern.is_match(text).unwrap_or(false)
}

/// A regular expression for a name with `*`.
fn glob(name: &str) -> String {
    name.split('*').map(escape).collect::<Vec<_>>().join(".*")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const STACKS: &str = include_str!("../tests/stacks.tsv");

    /// A frame of [`STACKS`].
    fn frame(text: &str) -> Function {
        let (module, what) = text.split_at(text.find(['!', '@']).unwrap_or(text.len()));
        let after = |sign: char| what.strip_prefix(sign).map(str::to_owned);
        Function { module: module.to_owned(), name: after('!'), source: after('@'), start: 0 }
    }

    #[test]
    fn known_stacks_have_their_layers() {
        let mut rules: HashMap<&str, Layers> = HashMap::new();
        let mut engines: HashMap<&str, HashSet<&str>> = HashMap::new();
        for line in STACKS.lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&str> = line.split('\t').collect();
            let [engine, system, layer, frames] = columns[..] else { panic!("{line}") };
            let functions: Vec<Function> = frames.split(';').rev().map(frame).collect();
            let stack = Stack { frames: (0..functions.len() as u32).collect(), samples: 1 };
            let layers = rules.entry(system).or_insert_with(|| Layers::of(system));
            let found = layers.add_up(&functions, &[stack]);
            assert_eq!(found, HashMap::from([(layer, 1)]), "{line}");
            engines.entry(engine).or_default().insert(layer);
        }
        assert_eq!(engines.len(), 5);
        for (engine, layers) in engines {
            let own = layers.iter().filter(|layer| layer.starts_with("storage engine: "));
            assert_eq!(own.count(), 5, "{engine}: {layers:?}");
        }
    }

    #[test]
    fn layer_between_files_is_that_of_both_or_of_a_rule_for_both() {
        let text = "*\t*\t@a1.cc…a3.cc\t^\n*\t*\t@a\tone\n*\t*\t@b\tother\n";
        let layers = Layers::parse(text, "mysql").unwrap();
        let of = |source: &str| layers.rule(&frame(&format!("mysqld@{source}")));
        let layer = |source: &str| of(source).map(|rule| rule.layer.as_str());
        assert_eq!(layer("a1.cc"), Some("one"));
        assert_eq!(layer("a1.cc…a2.cc"), Some("one"));
        for unknown in ["a1.cc…a3.cc", "a1.cc…b1.cc", "a1.cc…c1.cc", "c1.cc…a1.cc"] {
            assert_eq!(layer(unknown), None, "{unknown}");
        }
    }

    /// A run of somebody else has the rules of its user.
    #[test]
    fn damaged_rules_are_used_or_refused() {
        let rules = "*\t[k]\t(schedule|futex_wait)\tkernel: waits\n\
                     mysql,mariadb\tmysqld,ha_*.so\trow_(search|sel)_[a-z]+$\tread path!\n\
                     *\t*\t@a1.cc…a3.cc\t^\n";
        let words = ["\t", "(a*)*", "(?=", "\\1", "{999}", "[^", "\u{fffd}", "!"];
        let functions = [function("mysqld", Some(&"a".repeat(64))), function("mysqld", None)];
        let stack = Stack { frames: vec![0, 1], samples: 1 };
        // A regular expression may take 10 MB.
        let fuzz = dbdyno_fuzz::Fuzz::new(vec![rules.into()]).max_memory(256 << 20);
        fuzz.words(&words).cases(128).run(|rules| {
            let rules = String::from_utf8_lossy(rules);
            let _ = Layers::check(&rules);
            if let Ok(layers) = Layers::parse(&rules, "mysql") {
                let _ = layers.add_up(&functions, std::slice::from_ref(&stack));
            }
        });
    }

    fn function(module: &str, name: Option<&str>) -> Function {
        let source = name.is_none().then(|| "row0sel.cc".to_owned());
        Function { module: module.to_owned(), name: name.map(str::to_owned), source, start: 0 }
    }

    #[test]
    fn innermost_known_function_decides() {
        let functions = [
            function("libc.so.6", Some("memcpy")),
            function("mariadbd", Some("row_search_mvcc")),
            function("mariadbd", Some("handler::ha_index_next")),
            function("mariadbd", Some("no_such_function")),
            function("[k]", Some("tcp_sendmsg")),
            function("[k]", Some("no_such_call")),
            function("mariadbd", None),
        ];
        let stack = |frames: &[u32]| Stack { frames: frames.to_vec(), samples: 1 };
        let of = |frames: &[u32]| -> String {
            let layers = Layers::of("mariadb");
            let sums = layers.add_up(&functions, &[stack(frames)]);
            (*sums.keys().next().unwrap()).to_owned()
        };
        assert_eq!(of(&[0, 1, 2]), "storage engine: read path");
        assert_eq!(of(&[0, 2]), "handler interface");
        assert_eq!(of(&[0, 3]), UNKNOWN);
        assert_eq!(of(&[4, 5, 1]), "kernel: network");
        assert_eq!(of(&[5, 1]), KERNEL, "what called the kernel does not matter");
        assert_eq!(of(&[0, 6]), "storage engine: read path", "by its source file");
        assert_eq!(of(&[]), UNKNOWN);
    }

    #[test]
    fn rules_of_frames_that_everything_has_are_for_themselves_only() {
        let text = "*\t*\tmain\tserver!\n*\t*\twork\tworking\n";
        let layers = Layers::parse(text, "mysql").unwrap();
        let functions =
            [function("a", Some("main")), function("a", Some("work")), function("a", None)];
        let stacks: Vec<Stack> = [vec![0], vec![2, 0], vec![1, 0]]
            .into_iter()
            .map(|frames| Stack { frames, samples: 3 })
            .collect();
        let sums = layers.add_up(&functions, &stacks);
        assert_eq!(sums, HashMap::from([("server", 3), (UNKNOWN, 3), ("working", 3)]));
    }

    #[test]
    fn rules_that_are_wrong_are_named() {
        for (text, line) in [("# text\n*\t*\tx\n", 2), ("*\t*\t(\tlayer\n", 1)] {
            assert_eq!(Layers::parse(text, "mysql").unwrap_err().line, line);
        }
        for system in SYSTEMS {
            assert!(!Layers::of(system).0.is_empty(), "{system}");
        }
    }

    #[test]
    fn own_rules_come_first_and_are_checked_for_all_systems() {
        let own = "# mine\nmariadb\tmariadbd\trow_search\tmy layer\n";
        assert_eq!(Layers::check(own), Ok(()));
        assert_eq!(Layers::check(BUILT_IN), Ok(()));
        let functions = [function("mariadbd", Some("row_search_mvcc"))];
        let stack = [Stack { frames: vec![0], samples: 2 }];
        let of = |system: &str| {
            let layers = Layers::with_own(own, system).unwrap();
            layers.add_up(&functions, &stack).contains_key("my layer")
        };
        assert!(of("mariadb") && !of("mysql"));
        for wrong in ["mariadb\t*\tx\tlayer\nmaria\t*\tx\tlayer", "#\n*\t*\t(\tlayer"] {
            assert_eq!(Layers::check(wrong).unwrap_err().line, 2, "{wrong}");
        }
        for wrong in ["*\t*\tx\t", "*\t*\tx\t!", "*", "*\t*\tx"] {
            assert_eq!(Layers::check(wrong).unwrap_err().line, 1, "{wrong}");
        }
    }
}
