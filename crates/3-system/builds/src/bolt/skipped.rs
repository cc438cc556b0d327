//! Functions that BOLT must not change.

use std::path::Path;

use dbdyno_audit::{AuditError, Expected};

/// The symbols of functions that start a hardware transaction. Splitting such a function made
/// MariaDB use nearly twice the CPU time for the same queries: transactions became long enough to
/// be interrupted.
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

/// Parses the function whose jumps BOLT could not follow from its error message. An interpreter
/// with computed jumps, such as PostgreSQL's expression interpreter, contains a table of code
/// addresses.
pub(super) fn not_followed(log: &str) -> Option<String> {
    let (before, _) = log.rsplit_once(". Consider adding this function to --skip-funcs")?;
    let (_, name) = before.rsplit_once(" in function ")?;
    // Followed by the number of aliases, and its index among functions of the same name.
    let name = name.split_once("(*").map_or(name, |(name, _)| name);
    let name = name.split_once('/').map_or(name, |(name, _)| name);
    (!name.is_empty() && !name.contains(char::is_whitespace)).then(|| name.to_owned())
}

/// One pattern per line, as BOLT expects them. BOLT names local functions with a slash and a
/// number.
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
    use dbdyno_fuzz::Fuzz;

    use super::*;

    #[test]
    fn function_is_parsed_from_the_error() {
        let log = "BOLT-INFO: setting __hot_end to 0x156b734\nBOLT-ERROR: unable to get new address \
                    corresponding to input address 0x425810 in function ExecInterpExpr.lto_priv.0/1(*2). \
                    Consider adding this function to --skip-funcs=...\n";
        assert_eq!(not_followed(log).as_deref(), Some("ExecInterpExpr.lto_priv.0"));
        assert_eq!(not_followed("BOLT-ERROR: no space left in function f"), None);
        assert_eq!(not_followed(""), None);
    }

    #[test]
    fn damaged_errors_name_no_function_or_a_whole_one() {
        let log = "BOLT-ERROR: unable to get new address in function f.lto_priv.0/1(*2). \
                   Consider adding this function to --skip-funcs=...\n";
        let words =
            [" in function ", ". Consider adding this function to --skip-funcs", "(*", "/", "\n"];
        Fuzz::new(vec![log.into()]).words(&words).run(|log| {
            let Some(name) = not_followed(&String::from_utf8_lossy(log)) else { return };
            // One line of the file that BOLT reads.
            assert_eq!(as_patterns(&[name]).lines().count(), 1);
        });
    }

    #[test]
    fn patterns_match_only_the_name() {
        let names = ["_ZN10buf_pool_t3getEv".to_owned(), "lock.constprop.0".to_owned()];
        assert_eq!(
            as_patterns(&names),
            "_ZN10buf_pool_t3getEv(/.*)?\nlock\\.constprop\\.0(/.*)?\n"
        );
        assert_eq!(as_patterns(&[]), "");
    }
}
