//! Recognizes statements that differ only in strings and numbers from one that was checked before.

use crate::effect::depends_on_names_only;
use crate::setup::Dialect;

/// The shapes of the statements that were last allowed. Looking one up allocates nothing.
#[derive(Clone, Debug)]
pub struct AllowedShapes([u64; 64]);

impl Default for AllowedShapes {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl AllowedShapes {
    fn slot(shape: u64) -> usize {
        (shape >> 58) as usize
    }

    pub fn contain(&self, shape: u64) -> bool {
        self.0[Self::slot(shape)] == shape
    }

    /// Adds the shape of an allowed text, unless texts of this shape may do something else.
    pub fn add(&mut self, shape: u64, text: &str, dialect: Dialect) {
        if depends_on_names_only(text, dialect) {
            self.0[Self::slot(shape)] = shape;
        }
    }
}

/// A hash of a statement without its strings and numbers. `None` if quotes alone do not tell where strings end: with
/// comments, escapes or dollar quotes.
pub fn shape(sql: &[u8]) -> Option<u64> {
    // FNV-1a
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let (mut at, mut before) = (0, b' ');
    while let Some(&byte) = sql.get(at) {
        let rest = &sql[at + 1..];
        let length = match byte {
            b'\'' => {
                add(byte);
                quoted(rest, byte)?
            }
            b'"' | b'`' => {
                let length = quoted(rest, byte)?;
                sql[at..=at + length].iter().for_each(|byte| add(*byte));
                length
            }
            b'\\' | b'#' | b'$' => return None,
            b'-' if rest.first() == Some(&b'-') => return None,
            b'/' if rest.first() == Some(&b'*') => return None,
            b'0'..=b'9' if !is_word(before) => {
                let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                // A name may start with digits.
                if rest.get(digits).is_some_and(|byte| is_word(*byte)) {
                    sql[at..=at + digits].iter().for_each(|byte| add(*byte));
                } else {
                    add(b'0');
                }
                digits
            }
            byte => {
                add(byte);
                0
            }
        };
        at += 1 + length;
        before = sql[at - 1];
    }
    Some(hash)
}

/// The length of what follows a quote, up to the one that closes it.
fn quoted(rest: &[u8], quote: u8) -> Option<usize> {
    let end = rest.iter().position(|byte| *byte == quote || *byte == b'\\')?;
    (rest[end] == quote).then_some(end + 1)
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIALECT: Dialect = Dialect::MySql;

    #[test]
    fn statements_with_other_literals_have_one_shape() {
        for (a, b) in [
            ("SELECT c FROM t1 WHERE id=5", "SELECT c FROM t1 WHERE id=5021"),
            ("INSERT INTO t VALUES (1, 'a;')", "INSERT INTO t VALUES (20, '')"),
            ("UPDATE t SET a = 1.5", "UPDATE t SET a = 22.75"),
        ] {
            assert_eq!(shape(a.as_bytes()), shape(b.as_bytes()), "{a}");
            assert_ne!(shape(a.as_bytes()), None, "{a}");
            let (shape, mut allowed) = (shape(a.as_bytes()).unwrap(), AllowedShapes::default());
            assert!(!allowed.contain(shape));
            allowed.add(shape, a, DIALECT);
            assert!(allowed.contain(shape));
        }
    }

    #[test]
    fn statements_with_other_names_or_structure_have_another_shape() {
        for (a, b) in [
            ("DELETE FROM mine_1.t", "DELETE FROM mine_2.t"),
            ("DELETE FROM 1mine.t", "DELETE FROM 2mine.t"),
            ("DELETE FROM `a 1`.t", "DELETE FROM `a 2`.t"),
            ("SELECT 1", "SELECT 1;"),
            ("SELECT 'a'", "SELECT ''''"),
        ] {
            assert_ne!(shape(a.as_bytes()), shape(b.as_bytes()), "{a}");
        }
        for sql in [
            "SELECT 1 -- '",
            "SELECT /* ' */ 1",
            "SELECT 1 # '",
            "SELECT $$'$$",
            "SELECT '\\'",
            "SELECT '",
        ] {
            assert_eq!(shape(sql.as_bytes()), None, "{sql}");
        }
    }

    #[test]
    fn statements_whose_strings_are_executed_are_not_kept() {
        for sql in [
            "PREPARE p FROM 'SELECT 1'",
            "SELECT 1; PREPARE p FROM 'SELECT 1'",
            "SELECT set_config('a', 'b', false)",
            "EXPLAIN SELECT 1",
        ] {
            let (shape, mut allowed) = (shape(sql.as_bytes()).unwrap(), AllowedShapes::default());
            allowed.add(shape, sql, DIALECT);
            assert!(!allowed.contain(shape), "{sql}");
        }
    }
}
