use dbdyno_record::server::{ServerSystem, StatementMode, StorageEngine, Target};
use serde::{Deserialize, Serialize};

/// What a worker must know of a server to use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAccess {
    /// The program.
    pub system: ServerSystem,
    /// The storage engine that tables are made in; the server's default where there is none.
    pub engine: Option<StorageEngine>,
    /// Where the server listens, and who asks.
    pub target: Target,
    /// The schema that dbdyno's tables lie in.
    pub schema: String,
    /// How statements go to the server.
    pub statements: StatementMode,
    /// Whether dbdyno started it and it serves nobody else. Only then are its global settings
    /// touched.
    pub private: bool,
}
