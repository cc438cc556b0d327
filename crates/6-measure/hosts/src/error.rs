use crate::protocol::Failed;

/// A host cannot be used, or something failed there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// ssh cannot log in, or a command there failed.
    #[error("host {host}: {doing}: {message}{advice}")]
    Ssh {
        /// The host's name in the experiment.
        host: String,
        /// The action, such as `logging in`.
        doing: &'static str,
        /// What ssh or the command printed.
        message: String,
        /// What to do; empty if it is obvious.
        advice: String,
    },
    /// dbdyno cannot run there.
    #[error("host {host}: dbdyno cannot run there: {reason}")]
    Unsuitable {
        /// The host's name.
        host: String,
        reason: String,
    },
    /// The load generator cannot reach the host's address.
    #[error("host {host}: address {address}: {reason}")]
    Address {
        /// The host's name.
        host: String,
        address: String,
        /// The reason and what to do.
        reason: String,
    },
    /// The agent could not do something.
    #[error("host {host}: {}", .failed.whole)]
    Failed {
        /// The host's name.
        host: String,
        /// The reason.
        failed: Failed,
    },
    /// The connection to the agent is lost; the agent ends all servers there.
    #[error("lost the connection to host {host}: {reason}")]
    Lost {
        /// The host's name.
        host: String,
        reason: String,
    },
}

impl HostError {
    /// The message in one line, without lines of logs.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Self::Failed { host, failed } => format!("host {host}: {}", failed.brief),
            other => other.to_string(),
        }
    }

    /// Whether the connection is lost.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}
