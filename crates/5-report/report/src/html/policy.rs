//! The content security policy of pages.
//!
//! A page runs one script and has one style sheet, both ours and identified by their hashes. If text
//! of a run ever got into the markup unescaped, browsers would neither run nor apply it.

use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine};
use sha2::{Digest, Sha256};

/// The content of the page's `script` element.
pub(super) const SCRIPT: &str = concat!("\n", include_str!("script.js"));

/// The content of the page's `style` element.
pub(super) const STYLE: &str = concat!("\n", include_str!("style.css"));

/// The policy: nothing is loaded, submitted or run except these two elements.
pub(super) static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; \
         form-action 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_has_the_form_of_the_standard() {
        // From the example in Content Security Policy Level 3, section 8.2.
        let hash = hash("doSomething();");
        assert_eq!(hash, "sha256-RFWPLDbv2BY+rCkDzsE+0fr8ylGr2R2faWMhq4lfEQc=");
    }
}
