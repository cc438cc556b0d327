//! Symbols of new code, for `perf` and for debuggers.

pub(crate) mod perf_map;
pub(crate) mod symbol_files;

use std::path::{Path, PathBuf};

use dbdyno_machine::ProcessIdentity;

/// A gdb script that loads the symbols of all new code in a process, updated with each optimization.
/// `None` if there are no symbols.
#[must_use]
pub fn gdb_script(state: &Path, identity: &ProcessIdentity) -> Option<PathBuf> {
    let script = symbol_files::script(&crate::journal::directory(state, identity));
    script.exists().then_some(script)
}
