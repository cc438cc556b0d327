use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::ServerError;
use super::super::error::system;

/// Writes a configuration file that only this user can write and all users can read.
pub(super) fn write_config(file: &Path, text: &str) -> Result<(), ServerError> {
    let readable = Permissions::from_mode(0o644);
    std::fs::write(file, text)
        .and_then(|()| std::fs::set_permissions(file, readable))
        .map_err(system("writing", file))
}
