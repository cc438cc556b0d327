use std::fmt;

/// A warning: the file uses a deprecated name of a key or a value.
///
/// Displayed as ``quick.toml:12: `awake` is deprecated: use `prevent_idle` ``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deprecated {
    /// The file's name.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The deprecated name, as written in the file.
    pub old: String,
    /// The current name.
    pub new: String,
}

impl fmt::Display for Deprecated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, old, new } = self;
        write!(f, "{file}:{line}: `{old}` is deprecated: use `{new}`")
    }
}
