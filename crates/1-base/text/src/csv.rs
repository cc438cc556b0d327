//! Tables for programs.

use dbdyno_units::{Ratio, visible};

type Field<'a, R> = Box<dyn Fn(&R) -> String + 'a>;

/// A table with a header. Each column is its name and its field of a row, so that they cannot
/// disagree. An unknown value is an empty field.
pub struct Csv<'a, R> {
    rows: Vec<R>,
    columns: Vec<(String, Field<'a, R>)>,
}

impl<'a, R> Csv<'a, R> {
    pub fn of(rows: impl IntoIterator<Item = R>) -> Self {
        Self { rows: rows.into_iter().collect(), columns: Vec::new() }
    }

    pub fn column(mut self, name: impl Into<String>, of: impl Fn(&R) -> String + 'a) -> Self {
        self.columns.push((name.into(), Box::new(of)));
        self
    }

    /// A ratio has six decimals in every table: more precise than any interval.
    pub fn ratio(self, name: &str, of: impl Fn(&R) -> Option<Ratio> + 'a) -> Self {
        self.column(name, move |row| decimals(of(row).map(Ratio::get), 6))
    }

    /// A ratio and both ends of its interval.
    pub fn ratios<T: Into<[Ratio; 3]>>(
        mut self,
        names: [&str; 3],
        of: impl Fn(&R) -> Option<T> + Copy + 'a,
    ) -> Self {
        for (at, name) in names.into_iter().enumerate() {
            self = self.ratio(name, move |row| Some(of(row)?.into()[at]));
        }
        self
    }

    pub fn text(&self) -> String {
        let names = record(self.columns.iter().map(|(name, _)| name.clone()));
        let rows = self.rows.iter().map(|row| record(self.columns.iter().map(|(_, of)| of(row))));
        names + &rows.collect::<String>()
    }
}

fn record(fields: impl Iterator<Item = String>) -> String {
    format!("{}\n", fields.map(|field| quoted(&field)).collect::<Vec<_>>().join(","))
}

/// A field as spreadsheets read it back. Names and statements are texts of others: one that a spreadsheet would execute
/// begins with an apostrophe.
fn quoted(field: &str) -> String {
    // It may be shown on a terminal.
    let field = visible(field);
    let is_formula = field.starts_with(['=', '+', '-', '@', '\t']);
    if is_formula && field.parse::<f64>().is_err() {
        return quoted(&format!("'{field}"));
    }
    let is_special = field.contains(['"', ',', '\n']);
    if is_special { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.into_owned() }
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
        let csv = Csv::of(rows).column("name", |row| row.0.to_owned());
        let text = csv.column("value", |row| decimals(row.1, 3)).text();
        assert_eq!(text, "name,value\n\"a,\"\"b\"\"\nc\",1.500\nplain,\n");
    }

    #[test]
    fn formulas_are_texts_and_numbers_stay_numbers() {
        let fields =
            ["=1+1", "+a", "-2+3", "@a", "\ta", "\ra", "=a,\"b\"", "-1.5", "+2", "-", "a\u{1b}=1"];
        let text = Csv::of(fields).column("field", |field| (*field).to_owned()).text();
        let expected =
            "field\n'=1+1\n'+a\n'-2+3\n'@a\n'\ta\n␍a\n\"'=a,\"\"b\"\"\"\n-1.5\n+2\n'-\na␛=1\n";
        assert_eq!(text, expected);
    }
}
