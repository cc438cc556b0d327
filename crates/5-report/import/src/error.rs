use std::path::PathBuf;

use dbdyno_results::ResultsError;

/// Files could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The files have far more content than published results.
    #[error("{what}: more than dbdyno imports; split the files")]
    TooMuch {
        /// The number and what is counted.
        what: String,
    },
    /// A file is neither a table nor sysbench output, or has an error.
    #[error("{}:{line}: {what}; {help}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
        /// What to try.
        help: &'static str,
    },
    /// The content of a file is inconsistent.
    #[error("{}: {what}; {help}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What to try.
        help: &'static str,
    },
    /// The requested baseline is not among the candidates.
    #[error("no candidate is called `{name}`; there are {}", known.join(", "))]
    Baseline {
        /// The requested name.
        name: String,
        /// The known candidates.
        known: Vec<String>,
    },
    /// The files have values in two units.
    #[error(
        "{0} is given in million rows/s by a table and in statements/s by sysbench; import the \
         two into runs of their own"
    )]
    Units(String),
    /// No file has a value.
    #[error("nothing to import; name at least one table or file of sysbench's output")]
    Nothing,
    /// The directory already contains a run, imported or measured.
    #[error(
        "{0} holds a run already, and an import makes a new one; choose another directory with \
         --out, and lay the two side by side with `dbdyno report {0} DIR`"
    )]
    Exists(String),
    /// The run directory could not be written.
    #[error(transparent)]
    Results(ResultsError),
}

impl From<ResultsError> for ImportError {
    fn from(error: ResultsError) -> Self {
        match error {
            ResultsError::Exists(path) => Self::Exists(path),
            other => Self::Results(other),
        }
    }
}
