//! JSON format of audits, as printed and stored.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Audit, Difference};

/// The version of the JSON format. Must be increased whenever the format changes or different data
/// is read from files. Changes to findings do not count: they are recomputed whenever an audit is
/// loaded.
pub const VERSION: u32 = 5;

/// JSON that is not an audit.
#[derive(Debug, thiserror::Error)]
pub enum InvalidAudit {
    /// Not JSON, or without the fields of an audit.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Written by another version of dbdyno.
    #[error("unsupported version {0} (expected {VERSION})")]
    Version(u32),
}

/// Converts an audit, its components and, if given, its difference from a baseline to JSON.
#[must_use]
pub fn to_json(audit: &Audit, difference: Option<&Difference>) -> Value {
    let components = audit.components();
    let mut whole = json!({ "version": VERSION, "audit": audit, "components": components });
    if let Some(difference) = difference {
        whole["difference"] = json!(difference);
    }
    whole
}

/// Whether the text is [`to_json`]'s output of this version, so that reading the files again would
/// give the same audit.
#[must_use]
pub fn is_current(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Whole {
        version: u32,
    }
    serde_json::from_slice::<Whole>(text).is_ok_and(|whole| whole.version == VERSION)
}

/// Parses an audit from [`to_json`]'s output.
///
/// # Errors
/// When the text is not a valid audit, or has an unsupported version.
pub fn from_json(text: &[u8]) -> Result<Audit, InvalidAudit> {
    #[derive(Deserialize)]
    struct Whole {
        version: u32,
        audit: Value,
    }
    let whole: Whole = serde_json::from_slice(text)?;
    if whole.version != VERSION {
        return Err(InvalidAudit::Version(whole.version));
    }
    Ok(serde_json::from_value(whole.audit)?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::Expected;

    fn empty() -> Audit {
        Audit {
            root: PathBuf::from("/build"),
            expected: Expected { name: Some("rel".to_owned()), ..Expected::default() },
            objects: Vec::new(),
            flag_sets: Vec::new(),
            binaries: Vec::new(),
            findings: Vec::new(),
            unreadable: Vec::new(),
            compile_commands: None,
        }
    }

    #[test]
    fn audit_round_trips() {
        let text = to_json(&empty(), None).to_string();
        assert_eq!(from_json(text.as_bytes()).unwrap(), empty());
        assert!(is_current(text.as_bytes()));
    }

    #[test]
    fn unknown_version_is_refused() {
        for (version, expected) in [(6, "version 6 (expected 5)"), (4, "version 4 (expected 5)")] {
            let mut whole = to_json(&empty(), None);
            whole["version"] = json!(version);
            let text = whole.to_string();
            assert!(!is_current(text.as_bytes()));
            let error = from_json(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(from_json(b"{}").is_err());
        assert!(from_json(b"").is_err());
    }
}
