//! The identity of a run, which marks its schemas on existing servers.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Maximum length of a host name or a path in a message, in characters.
const MAX_TEXT: usize = 1_000;

/// A random number that only one run has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// The id with these random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The id as text: 32 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

/// A text is not the id of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a run has 32 hexadecimal digits")]
pub struct NotARunId;

impl TryFrom<String> for RunId {
    type Error = NotARunId;

    fn try_from(text: String) -> Result<Self, NotARunId> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 32 && text.bytes().all(is_digit) { Ok(Self(text)) } else { Err(NotARunId) }
    }
}

/// A run, and where its directory is. Only the id identifies the run; host and directory are for
/// messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    pub id: RunId,
    host: String,
    directory: String,
}

impl RunIdentity {
    /// The run with this id, on this host, in this directory. Control characters are replaced: the
    /// texts may come from a server of others.
    pub fn new(id: RunId, host: &str, directory: &str) -> Self {
        let plain = |text: &str| {
            let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
            text.chars().take(MAX_TEXT).map(visible).collect()
        };
        Self { id, host: plain(host), directory: plain(directory) }
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn directory(&self) -> &Path {
        Path::new(&self.directory)
    }

    /// The shell command that removes the run's data.
    pub fn clean_command(&self) -> String {
        let is_plain = |c: char| c.is_alphanumeric() || "/._-+@:,=%".contains(c);
        let Self { directory, .. } = self;
        if !directory.is_empty() && directory.chars().all(is_plain) {
            return format!("dbdyno clean {directory}");
        }
        format!("dbdyno clean '{}'", directory.replace('\'', r"'\''"))
    }
}

impl fmt::Display for RunIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run in {} on host {}", self.directory, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(directory: &str) -> RunIdentity {
        RunIdentity::new(RunId::from_random([0xa5; 16]), "db\x1b[2J", directory)
    }

    #[test]
    fn only_32_digits_are_an_id() {
        let id = RunId::from_random([0xa5; 16]);
        assert_eq!(RunId::try_from(id.as_str().to_owned()), Ok(id));
        for text in ["", "a5", &"A5".repeat(16), &"a5".repeat(17), &"é".repeat(16)] {
            assert_eq!(RunId::try_from(text.to_owned()), Err(NotARunId), "{text}");
        }
    }

    #[test]
    fn messages_have_no_control_characters() {
        assert_eq!(
            run("/tmp/a\nb").to_string(),
            "the run in /tmp/a\u{fffd}b on host db\u{fffd}[2J"
        );
    }

    #[test]
    fn directory_is_one_word_of_the_clean_command() {
        assert_eq!(run("/tmp/a-1").clean_command(), "dbdyno clean /tmp/a-1");
        assert_eq!(run("/tmp/it's $(x)").clean_command(), r"dbdyno clean '/tmp/it'\''s $(x)'");
    }
}
