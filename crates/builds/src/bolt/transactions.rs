//! Functions that must stay whole.

use std::path::Path;

use dbdyno_audit::Intent;

/// The functions of a program that begin a hardware transaction, by their symbols. Where such a
/// function was split, a MariaDB used nearly twice the CPU for the same queries: the way from the
/// transaction to its end had become long enough to be interrupted.
///
/// # Errors
/// The program cannot be read, as text.
pub(super) fn transactional(program: &Path) -> Result<Vec<String>, String> {
    let audit = dbdyno_audit::binary(program, None, &Intent::default())
        .map_err(|error| error.to_string())?;
    let names = audit.transactional().filter_map(|(_, function)| function.name.clone());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// A line for each function, as BOLT wants them: as patterns. It calls functions of one file by
/// their name, a slash and a number.
pub(super) fn as_patterns(names: &[String]) -> String {
    let escaped = |name: &String| {
        let mut text = String::new();
        for c in name.chars() {
            if !c.is_ascii_alphanumeric() && c != '_' {
                text.push('\\');
            }
            text.push(c);
        }
        text + "(/.*)?\n"
    };
    names.iter().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_patterns_that_match_themselves_only() {
        let names = ["_ZN10buf_pool_t3getEv".to_owned(), "lock.constprop.0".to_owned()];
        assert_eq!(
            as_patterns(&names),
            "_ZN10buf_pool_t3getEv(/.*)?\nlock\\.constprop\\.0(/.*)?\n"
        );
        assert_eq!(as_patterns(&[]), "");
    }
}
