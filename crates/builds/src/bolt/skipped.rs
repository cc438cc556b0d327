//! Functions that BOLT must leave as they are.

use std::path::Path;

use dbdyno_audit::{AuditError, Expected};

/// The functions of a program that begin a hardware transaction, by their symbols. Where such a
/// function was split, a MariaDB used nearly twice the CPU for the same queries: the way from the
/// transaction to its end had become long enough to be interrupted.
///
/// # Errors
/// The program cannot be read.
pub(super) fn transactional(program: &Path) -> Result<Vec<String>, AuditError> {
    let audit = dbdyno_audit::binary(program, None, &Expected::default())?;
    let names = audit.transactional().filter_map(|(_, function)| function.name.clone());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The function whose jumps BOLT could not follow, if that is how it ended: an interpreter with
/// computed jumps, such as PostgreSQL's of expressions, keeps addresses inside itself in a table.
pub(super) fn not_followed(said: &str) -> Option<String> {
    let (before, _) = said.rsplit_once(". Consider adding this function to --skip-funcs")?;
    let (_, name) = before.rsplit_once(" in function ")?;
    // With the number of its other names, and its number among those of one name.
    let name = name.split_once("(*").map_or(name, |(name, _)| name);
    let name = name.split_once('/').map_or(name, |(name, _)| name);
    (!name.is_empty() && !name.contains(char::is_whitespace)).then(|| name.to_owned())
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
    fn bolt_names_what_it_cannot_follow() {
        let said = "BOLT-INFO: setting __hot_end to 0x156b734\nBOLT-ERROR: unable to get new address \
                    corresponding to input address 0x425810 in function ExecInterpExpr.lto_priv.0/1(*2). \
                    Consider adding this function to --skip-funcs=...\n";
        assert_eq!(not_followed(said).as_deref(), Some("ExecInterpExpr.lto_priv.0"));
        assert_eq!(not_followed("BOLT-ERROR: no space left in function f"), None);
        assert_eq!(not_followed(""), None);
    }

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
