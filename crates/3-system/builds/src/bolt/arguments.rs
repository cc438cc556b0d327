//! BOLT's command line.

use std::path::Path;

use super::Bolt;

impl Bolt {
    /// The arguments for an instrumented copy, which writes to `counts` at exit.
    pub(super) fn instrument(
        &self,
        program: &Path,
        to: &Path,
        counts: &Path,
        alone: &Path,
    ) -> Vec<String> {
        vec![
            program.display().to_string(),
            "-instrument".to_owned(),
            format!("-instrumentation-file={}", counts.display()),
            // The program reads its own file at exit, and a server may not be able to read
            // /proc/self/exe.
            format!("-instrumentation-binpath={}", to.display()),
            format!("-skip-funcs-file={}", alone.display()),
            "-o".to_owned(),
            to.display().to_string(),
        ]
    }

    /// The arguments for optimizing a program, depending on the options that this version supports.
    pub(super) fn lay_out(
        &self,
        program: &Path,
        to: &Path,
        profile: &Path,
        alone: &Path,
        debug: bool,
    ) -> Vec<String> {
        let mut arguments = vec![
            program.display().to_string(),
            format!("-data={}", profile.display()),
            format!("-skip-funcs-file={}", alone.display()),
        ];
        arguments.extend(self.strategy().iter().map(|word| (*word).to_owned()));
        if debug {
            arguments.push("-update-debug-sections".to_owned());
        }
        arguments.extend(["-o".to_owned(), to.display().to_string()]);
        arguments
    }

    /// The optimization options.
    pub(super) fn strategy(&self) -> Vec<&'static str> {
        let order = match self.knows("=cdsort") {
            true => "-reorder-functions=cdsort",
            false => "-reorder-functions=hfsort+",
        };
        // Newer versions take a mode; older ones only a switch.
        let fold = if self.knows("--icf=<") { "-icf=all" } else { "-icf" };
        let mut words = vec!["-reorder-blocks=ext-tsp", order, "-split-functions"];
        words.extend(["-split-all-cold", "-split-eh", fold, "-dyno-stats"]);
        words
    }

    fn knows(&self, option: &str) -> bool {
        self.options.contains(option)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn bolt(options: &str) -> Bolt {
        let path = PathBuf::from("/usr/lib/llvm-19/bin/llvm-bolt");
        Bolt { path, version: String::new(), options: options.to_owned() }
    }

    #[test]
    fn options_depend_on_the_version() {
        let old = "  --icf      - fold\n    =hfsort+   - use\n";
        let words = bolt(old).strategy().join(" ");
        assert!(words.contains("-reorder-functions=hfsort+"), "{words}");
        assert!(words.contains(" -icf "), "{words}");
        let new = "  --icf=<value>  - fold\n    =cdsort   - use\n";
        let words = bolt(new).strategy().join(" ");
        assert!(words.contains("-reorder-functions=cdsort"), "{words}");
        assert!(words.contains(" -icf=all "), "{words}");
    }

    #[test]
    fn debug_information_is_updated() {
        let path = Path::new;
        let arguments =
            |debug| bolt("").lay_out(path("/b"), path("/t"), path("/p"), path("/s"), debug);
        let words = arguments(true).join(" ");
        assert!(words.starts_with("/b -data=/p -skip-funcs-file=/s -reorder-blocks="), "{words}");
        assert!(words.ends_with("-dyno-stats -update-debug-sections -o /t"), "{words}");
        assert!(!arguments(false).join(" ").contains("debug"));
    }
}
