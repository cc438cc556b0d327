//! Tables for programs.

/// A name and a field of a row.
pub type CsvColumn<'a, R> = (&'a str, &'a dyn Fn(&R) -> String);

/// A table with a header. Each column is its name and its field of a row, so that they cannot
/// disagree. An unknown value is an empty field.
pub fn csv<R>(columns: &[CsvColumn<'_, R>], rows: impl IntoIterator<Item = R>) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let mut text = record(&names);
    for row in rows {
        let fields: Vec<String> = columns.iter().map(|(_, of)| of(&row)).collect();
        text.push_str(&record(&fields));
    }
    text
}

fn record<T: AsRef<str>>(fields: &[T]) -> String {
    let quoted: Vec<String> = fields.iter().map(|field| quoted(field.as_ref())).collect();
    format!("{}\n", quoted.join(","))
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// A number with so many decimals; empty if it is unknown or not finite.
pub fn decimals(number: Option<f64>, decimals: usize) -> String {
    number
        .filter(|number| number.is_finite())
        .map_or_else(String::new, |number| format!("{number:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_needed() {
        let rows = [("a,\"b\"\nc", Some(1.5)), ("plain", None)];
        let text = csv(
            &[("name", &|row: &(&str, _)| row.0.to_owned()), ("value", &|row| decimals(row.1, 3))],
            rows,
        );
        assert_eq!(text, "name,value\n\"a,\"\"b\"\"\nc\",1.500\nplain,\n");
    }
}
