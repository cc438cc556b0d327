//! Files that less privileged processes can write, and directories that dbdyno trusts.
//!
//! What another user could have written is data: it is opened by descriptor beneath a [`SafeDir`],
//! no symbolic link is followed in any component of the path, only regular files are read, and only
//! up to a size limit.
//!
//! What dbdyno executes or relies on is in a trusted directory: every component of its path belongs
//! to root or to the effective user, and no other user can write to it.

mod private_group;
mod refusal;
mod safe_dir;
mod trusted_dir;
mod umask;
mod walk;

pub use refusal::Refusal;
pub use safe_dir::{SafeDir, check_regular};
pub use trusted_dir::{Untrusted, UntrustedDir};
pub use umask::restrict_umask_of_root;
pub use walk::WalkEntry;
