use std::path::Path;

use dbdyno_units::shell_quoted;

/// Quotes a command for a POSIX shell: words with special characters are quoted.
pub(crate) fn quote_command(program: &Path, args: &[String]) -> String {
    let mut text = shell_quoted(&program.to_string_lossy());
    for arg in args {
        text.push(' ');
        text.push_str(&shell_quoted(arg));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_special_characters_are_quoted() {
        let args = ["-O2".to_owned(), "a b.c".to_owned()];
        assert_eq!(quote_command(Path::new("/usr/bin/cc"), &args), "/usr/bin/cc -O2 'a b.c'");
    }
}
