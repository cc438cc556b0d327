//! Names of new code, for `perf` and for debuggers.

mod perf_map;
pub(crate) mod symbol_files;

use std::path::{Path, PathBuf};

use crate::attachment::Attachment;
use crate::identity::Identity;
use crate::optimize::PreparedPatch;

/// Writes the names of what was put in force last. The process runs without them, so a failure is
/// nobody's.
pub fn write(attachment: &Attachment, prepared: &PreparedPatch) {
    let patch = prepared.patch();
    perf_map::write(attachment.process().pid(), &patch.names, attachment.areas());
    if let Some(last) = attachment.generations().last() {
        symbol_files::write(attachment.directory(), last.number, patch);
    }
}

/// A script for gdb that tells it about all new code in a process; `None` where there is none.
/// It is renewed with each optimization.
#[must_use]
pub fn gdb_script(state: &Path, identity: &Identity) -> Option<PathBuf> {
    let script = symbol_files::script(&crate::journal::directory(state, identity));
    script.exists().then_some(script)
}
