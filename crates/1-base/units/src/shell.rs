//! Text for a POSIX shell.

/// One word for a POSIX shell, quoted if it has special characters.
#[must_use]
pub fn shell_quoted(word: &str) -> String {
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
        assert_eq!(shell_quoted("-march=native"), "-march=native");
        assert_eq!(shell_quoted("results/first"), "results/first");
        assert_eq!(shell_quoted("-DX=("), "'-DX=('");
        assert_eq!(shell_quoted("größe"), "'größe'");
        assert_eq!(shell_quoted("it's"), r"'it'\''s'");
        assert_eq!(shell_quoted(""), "''");
    }
}
