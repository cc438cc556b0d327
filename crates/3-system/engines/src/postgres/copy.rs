use std::io::Write;

use dbdyno_drivers::{Param, Params};

/// Appends a row in the text format of COPY.
pub(super) fn append_row(rows: &mut Vec<u8>, params: &Params) {
    for (index, value) in params.values().iter().enumerate() {
        if index > 0 {
            rows.push(b'\t');
        }
        match *value {
            Param::Null => rows.extend_from_slice(b"\\N"),
            // Writing to a Vec cannot fail.
            Param::Int(value) => drop(write!(rows, "{value}")),
            Param::Text { start, len } => append_text(rows, params.text(start, len)),
        }
    }
    rows.push(b'\n');
}

fn append_text(rows: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'\\' => rows.extend_from_slice(b"\\\\"),
            b'\t' => rows.extend_from_slice(b"\\t"),
            b'\n' => rows.extend_from_slice(b"\\n"),
            b'\r' => rows.extend_from_slice(b"\\r"),
            byte => rows.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        let mut params = Params::default();
        params.push_int(-7);
        params.push_text(b"plain");
        params.push_text(b"a\tb\nc\rd\\.");
        let mut rows = Vec::new();
        append_row(&mut rows, &params);
        assert_eq!(rows, b"-7\tplain\ta\\tb\\nc\\rd\\\\.\n");
    }
}
