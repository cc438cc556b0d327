use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

/// The directory that contains `proc`, `sys` and `etc`: `/`, or in tests a copy of another
/// machine's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsRoot(PathBuf);

impl FsRoot {
    /// The machine this process runs on.
    pub fn this_machine() -> Self {
        Self(PathBuf::from("/"))
    }

    /// The full path of `path`, which has no leading slash.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The trimmed text of a file; `None` if it cannot be read or is empty.
    ///
    /// Bytes that are not UTF-8 (firmware writes some) are replaced, not refused.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The parsed content of a file.
    pub(crate) fn value<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// The content of a file with 0 or 1.
    pub(crate) fn flag(&self, path: &str) -> Option<bool> {
        self.value::<u8>(path).map(|value| value != 0)
    }

    /// The sorted names in a directory; empty if it cannot be read.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// Files in a temporary directory, removed on drop.
    pub(crate) struct Fixture(tempfile::TempDir);

    impl Fixture {
        pub(crate) fn new(files: &[(&str, &str)]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = directory.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(directory)
        }

        pub(crate) fn root(&self) -> FsRoot {
            FsRoot(self.0.path().to_path_buf())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::Fixture;

    #[test]
    fn unreadable_values_are_none() {
        let tree = Fixture::new(&[("a/one", " 1\n"), ("a/empty", "\n"), ("a/word", "word\0\n")]);
        let root = tree.root();
        assert_eq!(root.value::<u64>("a/one"), Some(1));
        assert_eq!(root.flag("a/one"), Some(true));
        assert_eq!(root.text("a/empty"), None);
        assert_eq!(root.text("a/word").as_deref(), Some("word"));
        assert_eq!(root.value::<u64>("a/word"), None);
        assert_eq!(root.text("a/missing"), None);
        assert_eq!(root.names("a"), ["empty", "one", "word"]);
        assert!(root.names("b").is_empty());
    }
}
