//! Names of new code, for `perf` and for debuggers.

mod perf_map;
pub(crate) mod symbol_files;

use std::path::{Path, PathBuf};

use crate::identity::Identity;
use crate::keeper::Keeper;
use crate::optimize::Prepared;

/// Writes the names of what was put in force last. The process runs without them, so a failure is
/// nobody's.
pub fn write(keeper: &Keeper, prepared: &Prepared) {
    let patch = prepared.patch();
    perf_map::write(keeper.process().pid(), &patch.names, keeper.areas());
    if let Some(last) = keeper.generations().last() {
        symbol_files::write(keeper.directory(), last.number, patch);
    }
}

/// A script for gdb that tells it about all new code in a process; `None` where there is none.
/// It is renewed with each optimization.
#[must_use]
pub fn gdb_script(state: &Path, identity: &Identity) -> Option<PathBuf> {
    let script = symbol_files::script(&crate::journal::directory(state, identity));
    script.exists().then_some(script)
}
