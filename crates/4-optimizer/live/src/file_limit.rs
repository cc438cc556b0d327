//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Permits as many open files as possible: an attached process needs two, and a server may have thousands of
/// sessions; sampling without permission for all threads needs one per thread and CPU.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it fails, what needs more files reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
