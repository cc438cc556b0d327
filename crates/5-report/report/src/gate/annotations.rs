//! Annotations in the log of GitHub Actions ("workflow commands" in its documentation).

use super::Judged;

/// An annotation for each comparison that breaks a rule, and one for each rule of which nothing is
/// known; each on a line of its own.
#[must_use]
pub fn annotations(judged: &[Judged<'_>]) -> String {
    let mut text = String::new();
    for one in judged {
        let title = property(&format!("dbdyno: {}", one.rule));
        if one.is_unknown() {
            text.push_str(&format!("::warning title={title}::nothing could be judged\n"));
        }
        for comparison in one.comparisons.iter().filter(|one| one.is_broken()) {
            let message =
                format!("{}, {}: {}", comparison.candidate, comparison.place(), comparison.words());
            text.push_str(&format!("::error title={title}::{}\n", data(&message)));
        }
    }
    text
}

/// A message with the escapes of workflow commands.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a command: `:` and `,` would end it.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
