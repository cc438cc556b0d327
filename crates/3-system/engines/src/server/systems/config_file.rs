use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::super::ServerError;
use super::super::error::system;
use super::super::private_dir::remove_file_if_exists;

/// Replaces a configuration file by one that only this user can write and all users can read. What a
/// link of this name leads to is not changed.
pub(super) fn write_config(file: &Path, text: &str) -> Result<(), ServerError> {
    let write = || {
        remove_file_if_exists(file)?;
        let mut new = OpenOptions::new().write(true).create_new(true).mode(0o644).open(file)?;
        new.write_all(text.as_bytes())?;
        // The mode given to open() was subject to the umask.
        new.set_permissions(Permissions::from_mode(0o644))
    };
    write().map_err(system("writing", file))
}
