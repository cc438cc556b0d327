use rustix::fs::Mode;
use rustix::process::{geteuid, umask};

/// If this process is root, keeps other users from writing to the files and directories that it and
/// its children create, whatever umask it was started with. Call it before the first thread starts.
pub fn restrict_umask_of_root() {
    if geteuid().is_root() {
        let closed = Mode::WGRP | Mode::WOTH;
        umask(umask(closed) | closed);
    }
}
