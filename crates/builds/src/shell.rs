use std::path::Path;

/// Quotes a command for a POSIX shell: words with special characters are quoted.
#[must_use]
pub fn quote_command(program: &Path, args: &[String]) -> String {
    let mut text = quote(&program.to_string_lossy());
    for arg in args {
        text.push(' ');
        text.push_str(&quote(arg));
    }
    text
}

/// Quotes one word for a POSIX shell.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    // Within single quotes, only the single quote itself is special.
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_special_words_are_quoted() {
        assert_eq!(quote("-march=native"), "-march=native");
        assert_eq!(quote("-DX=("), "'-DX=('");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
        let args = ["-O2".to_owned(), "a b.c".to_owned()];
        assert_eq!(quote_command(Path::new("/usr/bin/cc"), &args), "/usr/bin/cc -O2 'a b.c'");
    }
}
