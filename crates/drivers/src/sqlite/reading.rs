use std::ffi::{CStr, c_int};

use super::api::{Functions, Stmt};
use crate::answer::text_digest;

const SQLITE_INTEGER: c_int = 1;

/// How a column is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// As an integer: the column was declared as one.
    Int,
    /// As a text: the column was declared as one.
    Text,
    /// By the type of each value: the column is an expression.
    ByValue,
}

impl Reading {
    /// The readings of all columns of a statement, from the types that they were declared with.
    pub(super) fn of_columns(functions: &Functions, statement: Stmt) -> Vec<Self> {
        // SAFETY: the statement is prepared and not finalized.
        let count = unsafe { (functions.column_count)(statement) };
        (0..count)
            .map(|column| {
                // SAFETY: as above, and the column exists.
                let declared = unsafe { (functions.column_decltype)(statement, column) };
                if declared.is_null() {
                    return Self::ByValue;
                }
                // SAFETY: not null, so a C string that lives as long as the statement.
                let declared = unsafe { CStr::from_ptr(declared) }.to_bytes();
                Self::of_declared(declared)
            })
            .collect()
    }

    /// SQLite's rules of affinity, as far as these two go
    /// (<https://sqlite.org/datatype3.html#determination_of_column_affinity>).
    fn of_declared(declared: &[u8]) -> Self {
        let declared = declared.to_ascii_uppercase();
        let has = |word: &[u8]| declared.windows(word.len()).any(|window| window == word);
        if has(b"INT") {
            Self::Int
        } else if has(b"CHAR") || has(b"CLOB") || has(b"TEXT") {
            Self::Text
        } else {
            Self::ByValue
        }
    }

    /// Reads one column of the current row and returns its part of the answer's digest.
    ///
    /// # Safety
    /// The statement stands on a row, and the column exists.
    #[inline(always)]
    pub(super) unsafe fn read(self, functions: &Functions, statement: Stmt, column: c_int) -> u64 {
        let as_int = match self {
            Self::Int => true,
            Self::Text => false,
            // SAFETY: as the caller promised.
            Self::ByValue => unsafe {
                (functions.column_type)(statement, column) == SQLITE_INTEGER
            },
        };
        if as_int {
            // SAFETY: as the caller promised.
            return unsafe { (functions.column_int64)(statement, column) } as u64;
        }
        // SAFETY: as above.
        let text = unsafe { (functions.column_text)(statement, column) };
        if text.is_null() {
            return 0;
        }
        // SAFETY: asked for after the text, so it is the length of that text in bytes.
        let len = unsafe { (functions.column_bytes)(statement, column) } as usize;
        // SAFETY: SQLite keeps `len` bytes there until the next step or reset.
        text_digest(unsafe { std::slice::from_raw_parts(text, len) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_types_decide_how_a_column_is_read() {
        assert_eq!(Reading::of_declared(b"INTEGER"), Reading::Int);
        assert_eq!(Reading::of_declared(b"bigint"), Reading::Int);
        assert_eq!(Reading::of_declared(b"CHAR(120)"), Reading::Text);
        assert_eq!(Reading::of_declared(b"REAL"), Reading::ByValue);
    }
}
