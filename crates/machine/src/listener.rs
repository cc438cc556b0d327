use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::sockopt::socket_peercred;

/// The process that listens at a Unix socket; `None` if there is none, or if it is in another
/// container.
#[must_use]
pub fn listener(socket: &Path) -> Option<u32> {
    let socket = UnixStream::connect(socket).ok()?;
    // The credentials are those of the process that called listen().
    let pid = socket_peercred(&socket).ok()?.pid.as_raw_nonzero().get();
    u32::try_from(pid).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn process_that_listens_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert_eq!(listener(&path), None);
        let _socket = UnixListener::bind(&path).unwrap();
        assert_eq!(listener(&path), Some(std::process::id()));
    }
}
