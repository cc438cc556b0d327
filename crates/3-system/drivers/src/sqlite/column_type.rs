use std::ffi::{CStr, c_int};

use super::api::{Functions, Stmt};
use crate::answer::text_digest;

const SQLITE_INTEGER: c_int = 1;

/// How values of a column are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// As integers: the column is declared as one.
    Int,
    /// As texts: the column is declared as one.
    Text,
    /// By the type of each value: the column is an expression.
    Dynamic,
}

impl ColumnType {
    /// The types of a statement's columns, from their declared types.
    pub(super) fn of_columns(functions: &Functions, statement: Stmt) -> Vec<Self> {
        // SAFETY: the statement is prepared and not finalized.
        let count = unsafe { (functions.column_count)(statement) };
        (0..count)
            .map(|column| {
                // SAFETY: as above, and the column exists.
                let declared = unsafe { (functions.column_decltype)(statement, column) };
                if declared.is_null() {
                    return Self::Dynamic;
                }
                // SAFETY: not null, so a C string that lives as long as the statement.
                let declared = unsafe { CStr::from_ptr(declared) }.to_bytes();
                Self::of_declared(declared)
            })
            .collect()
    }

    /// SQLite's affinity rules for integers and texts
    /// (<https://sqlite.org/datatype3.html#determination_of_column_affinity>).
    fn of_declared(declared: &[u8]) -> Self {
        let declared = declared.to_ascii_uppercase();
        let has = |word: &[u8]| declared.windows(word.len()).any(|window| window == word);
        if has(b"INT") {
            Self::Int
        } else if has(b"CHAR") || has(b"CLOB") || has(b"TEXT") {
            Self::Text
        } else {
            Self::Dynamic
        }
    }

    /// Reads a column of the current row and returns its contribution to the digest.
    ///
    /// # Safety
    /// The statement has a current row, and the column exists.
    #[inline(always)]
    pub(super) unsafe fn read(self, functions: &Functions, statement: Stmt, column: c_int) -> u64 {
        let as_int = match self {
            Self::Int => true,
            Self::Text => false,
            // SAFETY: as the caller promised.
            Self::Dynamic => unsafe {
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
    fn declared_type_determines_the_column_type() {
        assert_eq!(ColumnType::of_declared(b"INTEGER"), ColumnType::Int);
        assert_eq!(ColumnType::of_declared(b"bigint"), ColumnType::Int);
        assert_eq!(ColumnType::of_declared(b"CHAR(120)"), ColumnType::Text);
        assert_eq!(ColumnType::of_declared(b"REAL"), ColumnType::Dynamic);
    }
}
