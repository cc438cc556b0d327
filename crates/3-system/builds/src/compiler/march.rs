use std::path::Path;

use super::{CompilerKind, output_of};

/// The instruction set that a gcc compiles for by default, by its name for `-march`; `None` if it does not tell.
/// Distributions configure it: Red Hat's is `x86-64-v2`.
pub(crate) fn default_march(kind: CompilerKind, path: &Path) -> Option<String> {
    let text = match kind {
        CompilerKind::Gcc => output_of(path, &["-Q", "--help=target"]).ok()?,
        CompilerKind::Clang => return None,
    };
    parse(&text)
}

fn parse(help: &str) -> Option<String> {
    let value = help.lines().find_map(|line| line.trim_start().strip_prefix("-march="))?;
    // Without a value, some versions show `-march=ARCH`.
    let is_shown = value.starts_with(char::is_whitespace) && value.split_whitespace().count() == 1;
    is_shown.then(|| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_the_value_of_the_option() {
        let help = "The following options are target specific:\n  -m128bit-long-double        \t[enabled]\n  \
                    -march=                     \t\tx86-64-v2\n  -mtune=  \t\tgeneric\n";
        assert_eq!(parse(help).as_deref(), Some("x86-64-v2"));
        assert_eq!(parse("  -march=ARCH  \t\t\n"), None);
        assert_eq!(parse("  -march=  \t\t\n"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn default_of_gcc_is_known() {
        assert!(default_march(CompilerKind::Gcc, Path::new("/usr/bin/gcc")).is_some());
    }
}
