use crate::{Error, ErrorKind};

/// The rows of a query as text, up to a size that no query of dbdyno reaches: a server could send rows until
/// the memory is full.
#[derive(Default)]
pub(crate) struct TextRows {
    rows: Vec<Vec<Option<String>>>,
    size: usize,
}

impl TextRows {
    pub(crate) const MAX_SIZE: usize = 64 << 20;

    /// Appends a row. False if there are too many.
    pub(crate) fn push(&mut self, row: Vec<Option<String>>) -> bool {
        let texts: usize = row.iter().flatten().map(String::capacity).sum();
        self.size += texts + size_of_val(&*row) + size_of_val(&row);
        if self.is_full() {
            return false;
        }
        self.rows.push(row);
        true
    }

    fn is_full(&self) -> bool {
        self.size > Self::MAX_SIZE
    }

    /// The rows, or the error for too many, or else `failure`.
    pub(crate) fn finish(
        self,
        outcome: Result<(), Error>,
    ) -> Result<Vec<Vec<Option<String>>>, Error> {
        match outcome {
            Ok(()) => Ok(self.rows),
            Err(error) if self.is_full() => Err(Error {
                message: format!(
                    "the server sent more than {} MiB in response; the connection is closed",
                    Self::MAX_SIZE >> 20
                ),
                kind: ErrorKind::Connection,
                ..error
            }),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> Error {
        Error {
            doing: "executing SELECT 1".to_owned(),
            message: "invalid".to_owned(),
            code: None,
            kind: ErrorKind::Statement,
        }
    }

    #[test]
    fn rows_are_limited_by_size_and_number() {
        for row in [vec![Some("x".repeat(1 << 20))], vec![None; 60_000], Vec::new()] {
            let mut rows = TextRows::default();
            let accepted = (0..4_000_000).take_while(|_| rows.push(row.clone())).count();
            assert!((40..4_000_000).contains(&accepted), "{accepted}");
            let error = rows.finish(Err(failure())).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Connection);
            assert!(error.message.contains("more than 64 MiB"), "{error}");
        }
    }

    #[test]
    fn other_errors_are_kept() {
        let mut rows = TextRows::default();
        assert!(rows.push(vec![Some("a".to_owned()), None]));
        assert_eq!(rows.finish(Err(failure())), Err(failure()));
    }
}
