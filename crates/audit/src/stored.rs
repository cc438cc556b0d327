//! Audits as JSON: what is printed and stored.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Audit, Difference};

/// The version of what is read from files and how it is written down, raised with every change to
/// either: an audit that was stored with another one is made again. How files are judged is no
/// part of it, since that is done anew whenever an audit is loaded.
pub const VERSION: u32 = 2;

/// The audit, its components and, where there is one, its difference to a baseline.
#[must_use]
pub fn to_json(audit: &Audit, difference: Option<&Difference>) -> Value {
    let components = audit.components();
    let mut whole = json!({ "version": VERSION, "audit": audit, "components": components });
    if let Some(difference) = difference {
        whole["difference"] = json!(difference);
    }
    whole
}

/// Reads back an audit of this version.
///
/// # Errors
/// Why it is none.
pub fn from_json(text: &[u8]) -> Result<Audit, String> {
    #[derive(Deserialize)]
    struct Whole {
        version: u32,
        audit: Value,
    }
    let whole: Whole = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if whole.version != VERSION {
        return Err(format!("it is of version {}, and this is {VERSION}", whole.version));
    }
    serde_json::from_value(whole.audit).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::Intent;

    fn empty() -> Audit {
        Audit {
            root: PathBuf::from("/build"),
            intent: Intent { name: Some("rel".to_owned()), ..Intent::default() },
            objects: Vec::new(),
            flag_sets: Vec::new(),
            binaries: Vec::new(),
            findings: Vec::new(),
            unreadable: Vec::new(),
            asked: None,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = to_json(&empty(), None).to_string();
        assert_eq!(from_json(text.as_bytes()), Ok(empty()));
    }

    #[test]
    fn another_version_is_refused() {
        let mut whole = to_json(&empty(), None);
        whole["version"] = json!(VERSION + 1);
        let error = from_json(whole.to_string().as_bytes()).unwrap_err();
        assert!(error.contains("of version 3, and this is 2"), "{error}");
        assert!(from_json(b"{}").is_err());
        assert!(from_json(b"").is_err());
    }
}
