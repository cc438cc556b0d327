//! Statements of a template: parsed once, then instantiated for each range size.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use dbdyno_document::{BadValue, Document, Problem, Span, Spanned, Table, nearest};

use super::draw;
use crate::definition::{Bound, Counted, Expect, ParameterSource, Statement, TableChoice};
use crate::effect::changes_rows;
use crate::setup::Dialect;
use crate::sql::{SqlPart, split_sql};

/// A parsed statement, before the range size is filled in.
pub struct ParsedStatement<'d> {
    sql: Spanned<&'d str>,
    draw: Vec<(Spanned<&'d str>, Spanned<&'d str>)>,
    counted: Counted,
    count: Spanned<Cow<'d, str>>,
    repeat: u32,
    table: Spanned<TableChoice>,
}

/// State while the statements of one event are instantiated, in order.
pub struct Scope<'d, 'e> {
    document: &'d Document,
    range: Option<i64>,
    parsed: &'e [ParsedStatement<'d>],
    parameters: BTreeMap<&'d str, Kind>,
    first: bool,
}

/// The kind of a parameter's values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    List,
    Text,
    /// Its source is invalid; no further problems of it are reported.
    Unknown,
}

impl<'d, 'e> Scope<'d, 'e> {
    /// The scope before the first statement of an event with this range size.
    pub fn new(
        document: &'d Document,
        range: Option<i64>,
        parsed: &'e [ParsedStatement<'d>],
    ) -> Self {
        Self { document, range, parsed, parameters: BTreeMap::new(), first: true }
    }

    fn report(&self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.document.problem(span, message, help);
    }

    fn report_bad(&self, span: Span, bad: BadValue) {
        self.report(span, bad.message, bad.help);
    }

    /// The text with `{R}` replaced by the range size.
    fn fill(&self, text: Spanned<&str>) -> String {
        const RANGE: &str = "{R}";
        match (self.range, text.value.find(RANGE)) {
            (Some(range), Some(_)) => text.value.replace(RANGE, &range.to_string()),
            (None, Some(at)) => {
                let span = self.document.within(text.span, text.value, at..at + RANGE.len());
                let message = "`{R}` stands for a range size, and there is none";
                self.report(span, message, "add `ranges = [100]` to the microbenchmark");
                // Use any size to check the rest.
                text.value.replace(RANGE, "1")
            }
            (_, None) => text.value.to_owned(),
        }
    }

    fn is_offset_of(&self, name: &str) -> bool {
        self.parsed.iter().flat_map(|draft| &draft.draw).any(|(_, how)| {
            matches!(draw::parse(&how.value.replace("{R}", "1")), Ok(ParameterSource::Offset { of, .. }) if of == name)
        })
    }
}

impl<'d> ParsedStatement<'d> {
    /// Parses a table of `statements`. Reports a missing required key or one of the wrong type, and
    /// returns `None`.
    pub fn read(mut table: Table<'d>) -> Option<Self> {
        table.require("sql");
        let sql = table.string("sql");
        let mut draw = Vec::new();
        if let Some(mut draws) = table.table("draw") {
            draw = draws.named_strings();
        }
        let rows = table.scalar("rows");
        let affects = table.scalar("affects");
        if table.has("rows") && table.has("affects") {
            let span = affects.as_ref().map_or(table.span(), |affects| affects.span);
            let problem = Problem::new(span, "both `rows` and `affects`");
            table.report(
                problem.help("a query has `rows`, a statement that changes data `affects`"),
            );
        } else if !table.has("rows") && !table.has("affects") {
            table.problem(
                table.span(),
                "missing key `rows` or `affects`",
                "set the number of rows that it returns or changes",
            );
        }
        let repeat = table.number("repeat", 1..=10_000).unwrap_or(1);
        let choice = table.choice("table", TableChoice::WORDS);
        let choice = choice.unwrap_or(Spanned { value: TableChoice::Any, span: table.span() });
        table.finish();
        let (counted, count) = match (rows, affects) {
            (Some(rows), _) => (Counted::Rows, rows),
            (None, Some(affects)) => (Counted::Affected, affects),
            (None, None) => return None,
        };
        Some(Self { sql: sql?, draw, counted, count, repeat, table: choice })
    }

    /// Whether it changes data.
    pub fn writes(&self) -> bool {
        self.counted == Counted::Affected
    }

    /// Instantiates the statement for the scope's range size and reports its problems. Returns
    /// `None` if its count is invalid.
    pub fn statement(&self, scope: &mut Scope<'d, '_>) -> Option<Statement> {
        if std::mem::take(&mut scope.first) && self.table.value == TableChoice::Same {
            scope.report(
                self.table.span,
                "the first statement of an event has no `same` table",
                "`same` is the table of the statement before",
            );
        }
        let draw = self.draws(scope);
        self.check_verb(scope);
        self.check_placeholders(scope);
        self.check_parameters(scope);
        self.check_draws_are_used(scope);
        let (at_least, at_most) = self.bounds(scope)?;
        Some(Statement {
            sql: scope.fill(self.sql),
            draw,
            repeat: self.repeat,
            table: self.table.value,
            expect: Expect { what: self.counted, at_least, at_most },
        })
    }

    /// Parses the sources of the parameters and adds them to the scope.
    fn draws(&self, scope: &mut Scope<'d, '_>) -> Vec<(String, ParameterSource)> {
        let mut draws = Vec::with_capacity(self.draw.len());
        for (name, how) in &self.draw {
            if !draw::is_name(name.value) {
                let message = format!("`{}` cannot be the name of a parameter", name.value);
                scope.report(name.span, message, "names are made of letters, digits and _");
            }
            let draw = match draw::parse(&scope.fill(*how)) {
                Ok(draw) => draw,
                Err(bad) => {
                    scope.report_bad(how.span, bad);
                    scope.parameters.insert(name.value, Kind::Unknown);
                    continue;
                }
            };
            if let ParameterSource::Offset { of, .. } = &draw {
                match scope.parameters.get(of.as_str()) {
                    Some(Kind::Number | Kind::Unknown) => {}
                    Some(Kind::List | Kind::Text) => {
                        let message = format!("`{of}` is not a number: nothing can be added to it");
                        scope.report(how.span, message, "only single keys and fixed numbers can");
                    }
                    None => {
                        let message = format!("`{of}` is not drawn before `{}`", name.value);
                        scope.report(
                            how.span,
                            message,
                            "parameters are drawn in the order in which they are written",
                        );
                    }
                }
            }
            let kind = match &draw {
                ParameterSource::Key(_)
                | ParameterSource::Fixed(_)
                | ParameterSource::Between { .. }
                | ParameterSource::Offset { .. } => Kind::Number,
                ParameterSource::KeyList { .. } | ParameterSource::Middle { .. } => Kind::List,
                ParameterSource::Text(_) => Kind::Text,
            };
            scope.parameters.insert(name.value, kind);
            draws.push((name.value.to_owned(), draw));
        }
        draws
    }

    /// Checks that queries have `rows` and writes have `affects`: the schedule relies on it.
    fn check_verb(&self, scope: &Scope<'d, '_>) {
        let changes = [Dialect::MySql, Dialect::PostgreSql]
            .map(|dialect| changes_rows(self.sql.value, dialect));
        if self.counted == Counted::Rows && changes.contains(&Some(true)) {
            let message = "a statement that changes data has no `rows`";
            scope.report(self.count.span, message, "set `affects` instead");
        } else if self.counted == Counted::Affected && changes == [Some(false); 2] {
            scope.report(self.count.span, "a query has no `affects`", "set `rows` instead");
        }
    }

    fn check_placeholders(&self, scope: &Scope<'d, '_>) {
        let sql = self.sql.value;
        for (at, _) in sql.match_indices('{') {
            let Some(length) = sql[at..].find('}') else { continue };
            let word = &sql[at + 1..at + length];
            if draw::is_name(word) && word != "table" && word != "R" {
                let span = scope.document.within(self.sql.span, sql, at..at + length + 1);
                let help = match nearest(word, ["table", "R"]) {
                    Some(near) => format!("did you mean `{{{near}}}`?"),
                    None => format!(
                        "there are `{{table}}` and, with `ranges`, `{{R}}`; write `{{ {word} }}` for a text of \
                         the statement"
                    ),
                };
                scope.report(span, format!("unknown placeholder `{{{word}}}`"), help);
            }
        }
    }

    fn check_parameters(&self, scope: &Scope<'d, '_>) {
        for (name, place) in parameters(self.sql.value) {
            let span = scope.document.within(self.sql.span, self.sql.value, place.clone());
            match scope.parameters.get(name) {
                None => {
                    let known = scope.parameters.keys().copied();
                    let help = match nearest(name, known) {
                        Some(near) => format!("did you mean `:{near}`?"),
                        None => format!("add `draw = {{ {name} = \"uniform\" }}`"),
                    };
                    scope.report(span, format!("`:{name}` is never drawn"), help);
                }
                Some(Kind::List) if !stands_in_list(self.sql.value, &place) => {
                    let help = format!("write `IN (:{name})`");
                    scope.report(span, format!("`:{name}` is a list of keys"), help);
                }
                Some(_) => {}
            }
        }
    }

    fn check_draws_are_used(&self, scope: &Scope<'d, '_>) {
        for (name, _) in &self.draw {
            let in_sql = parameters(self.sql.value).any(|(used, _)| used == name.value);
            if !in_sql && !scope.is_offset_of(name.value) {
                let help = format!("nothing uses `:{}` of this statement", name.value);
                scope.report(name.span, format!("`{}` is drawn, but not used", name.value), help);
            }
        }
    }

    fn bounds(&self, scope: &Scope<'d, '_>) -> Option<(Bound, Bound)> {
        let count = Spanned { value: &*self.count.value, span: self.count.span };
        let bounds = match draw::parse_bounds(&scope.fill(count)) {
            Ok(bounds) => bounds,
            Err(bad) => {
                scope.report_bad(self.count.span, bad);
                return None;
            }
        };
        let used: Vec<Kind> = parameters(self.sql.value)
            .filter_map(|(name, _)| scope.parameters.get(name).copied())
            .collect();
        let number_of = |kind| used.iter().filter(|used| **used == kind).count();
        let has = |bound| bounds.0 == bound || bounds.1 == bound;
        if !used.contains(&Kind::Unknown) {
            if has(Bound::Keys) && number_of(Kind::List) == 0 {
                let help = "it counts the different keys of a list";
                scope.report(self.count.span, "`keys` needs a list among the parameters", help);
            }
            if has(Bound::Range) && number_of(Kind::Number) < 2 {
                let help = "it counts the ids from the first to the second";
                scope.report(
                    self.count.span,
                    "`range` needs two numbers among the parameters",
                    help,
                );
            }
        }
        Some(bounds)
    }
}

/// The parameters of a statement with their positions, including the colon.
fn parameters(sql: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    let mut at = 0;
    split_sql(sql).into_iter().filter_map(move |part| {
        let start = at;
        at += match part {
            SqlPart::Text(text) => text.len(),
            SqlPart::Table => "{table}".len(),
            SqlPart::Parameter(name) => 1 + name.len(),
        };
        match part {
            SqlPart::Parameter(name) => Some((name, start..at)),
            SqlPart::Text(_) | SqlPart::Table => None,
        }
    })
}

/// Whether a parameter is alone in the parentheses of `IN (…)`.
fn stands_in_list(sql: &str, place: &Range<usize>) -> bool {
    let before = sql[..place.start].trim_end().strip_suffix('(').map(str::trim_end);
    let word = before.and_then(|before| before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next());
    word.is_some_and(|word| word.eq_ignore_ascii_case("in"))
        && sql[place.end..].trim_start().starts_with(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_with_their_positions() {
        let sql = "UPDATE {table} SET c = :c WHERE id IN (:ids)";
        let found: Vec<_> = parameters(sql).map(|(name, at)| (name, &sql[at])).collect();
        assert_eq!(found, [("c", ":c"), ("ids", ":ids")]);
    }

    #[test]
    fn list_parameter_must_be_alone_in_parentheses() {
        for (sql, right) in [
            ("id IN (:ids)", true),
            ("id NOT in( :ids )", true),
            ("id IN (1, :ids)", false),
            ("id IN (:ids, 1)", false),
            ("id = :ids", false),
            ("min(:ids)", false),
            (":ids", false),
        ] {
            let (_, place) = parameters(sql).next().unwrap();
            assert_eq!(stands_in_list(sql, &place), right, "{sql}");
        }
    }
}
