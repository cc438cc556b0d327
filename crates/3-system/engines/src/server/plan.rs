use dbdyno_types::server::{Durability, StorageEngine};
use serde::{Deserialize, Serialize};

use super::Installation;

/// Amount of data and number of clients; determines the sizes of caches and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataShape {
    /// Number of tables.
    pub tables: u32,
    /// Rows per table.
    pub rows: u64,
    /// Concurrent connections.
    pub clients: u32,
}

impl DataShape {
    /// Size of all tables at this size of a row with its index entries.
    pub(crate) fn data_bytes(self, row_bytes: u64) -> u64 {
        row_bytes * self.rows * u64::from(self.tables)
    }
}

/// A server program and the settings it runs with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerPlan {
    pub(super) installation: Installation,
    pub(super) engine: Option<StorageEngine>,
    pub(super) durability: Durability,
    pub(super) settings: Vec<(String, String)>,
    pub(super) environment: Vec<(String, String)>,
}

impl ServerPlan {
    /// Sets the environment of the server and of the program that creates its data, which is empty
    /// otherwise. Instrumented programs need it.
    #[must_use]
    pub fn with_environment(self, environment: Vec<(String, String)>) -> Self {
        Self { environment, ..self }
    }

    /// All settings that differ from the server's defaults, except paths and sockets.
    #[must_use]
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// The program.
    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The storage engine; `None` if the system has no choice of engines.
    #[must_use]
    pub fn engine(&self) -> Option<StorageEngine> {
        self.engine
    }

    /// The requested durability of a commit.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The value of a setting, by its canonical name.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        let setting = self.settings.iter().find(|(known, _)| known == name);
        setting.map(|(_, value)| value.as_str())
    }
}

/// What default settings depend on.
pub(crate) struct SettingsRequest<'a> {
    pub(crate) installation: &'a Installation,
    pub(crate) engine: Option<StorageEngine>,
    pub(crate) durability: Durability,
    pub(crate) shape: DataShape,
}
