use dbdyno_types::RunIdentity;
use dbdyno_types::server::{ServerSystem, StatementMode, StorageEngine, Target};
use serde::{Deserialize, Serialize};

/// How a worker reaches a server and where its tables are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAccess {
    /// The database system.
    pub system: ServerSystem,
    /// Storage engine for new tables; `None` for the server's default.
    pub engine: Option<StorageEngine>,
    /// Address, user and database.
    pub target: Target,
    /// Schema for dbdyno's tables.
    pub schema: String,
    /// How statements are sent.
    pub statements: StatementMode,
    /// The run that owns the schema; `None` on a private server, which belongs to the run as a whole.
    pub owner: Option<RunIdentity>,
}

impl ServerAccess {
    /// Whether it is a private server. Global settings are changed only on those.
    #[must_use]
    pub const fn is_private(&self) -> bool {
        self.owner.is_none()
    }
}
