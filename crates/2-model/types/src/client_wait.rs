use serde::{Deserialize, Serialize};

/// How clients of a server wait for answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientWait {
    /// Ask the kernel again and again, which uses the whole CPU: no answer has to wake the client,
    /// which would be work of the server's CPU.
    Poll,
    /// Sleep until the kernel wakes the client.
    #[default]
    Sleep,
}

impl ClientWait {
    /// All cases.
    pub const ALL: [Self; 2] = [Self::Poll, Self::Sleep];

    /// The word in experiments and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Sleep => "sleep",
        }
    }
}
