//! A small disk.

use std::fs::{File, create_dir};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dbdyno_fuzz::skip;

/// A file system in memory. Unmounted on drop.
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts one below `dir`. Prints the reason and returns `None` if that is not permitted.
    pub fn mount(dir: &Path, mebibytes: u32) -> Option<Self> {
        let path = dir.join("disk");
        create_dir(&path).unwrap();
        let size = format!("size={mebibytes}m");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", &size, "dbdyno-test"]).arg(&path).output();
        match mounted {
            Ok(Output { status, .. }) if status.success() => Some(Self { path }),
            Ok(Output { stderr, .. }) => {
                skip(&format!("cannot mount: {}", String::from_utf8_lossy(&stderr).trim()));
                None
            }
            Err(error) => {
                skip(&format!("cannot mount: {error}"));
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Uses all free space.
    pub fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        for chunk in [vec![0; 1 << 20], vec![0; 1 << 12]] {
            loop {
                match file.write_all(&chunk) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("filling the disk: {error}"),
                }
            }
        }
    }

    /// Frees the space again.
    pub fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a worker left behind by a failing test may still have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
    }
}
