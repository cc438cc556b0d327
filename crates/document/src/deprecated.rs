use std::fmt;

/// A warning: the file uses the former name of a key or of a value.
///
/// Displayed as ``quick.toml:12: `awake` is deprecated: use `prevent_idle` ``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deprecated {
    /// The file's name.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The former name, as the file has it.
    pub old: String,
    /// The present name.
    pub new: String,
}

impl fmt::Display for Deprecated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, old, new } = self;
        write!(f, "{file}:{line}: `{old}` is deprecated: use `{new}`")
    }
}
