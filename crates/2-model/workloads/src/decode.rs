//! Decoder of `[[microbenchmark]]` tables, built-in and user-defined.
//!
//! A table is a template: it defines one microbenchmark for each stage and range size that it
//! lists, with `{R}` replaced by the size. All problems are reported here; decoded definitions
//! are consistent.

mod draw;
mod script;
mod statement;

use dbdyno_document::{Problem, Spanned, Table, nearest};

use crate::answers::Answers;
use crate::catalog::selecting_words;
use crate::definition::{Group, Microbenchmark, PUBLISHED_GROUPS, Stage, Throughput};
use statement::{ParsedStatement, Scope};

/// The definitions of one `[[microbenchmark]]` table.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The name in the table, without stage and range.
    pub name: Spanned<String>,
    /// One microbenchmark for each stage and range size, in the table's order.
    pub microbenchmarks: Vec<Microbenchmark>,
}

/// The maximum range size: larger than any table that fits on a disk, and cannot overflow.
const GREATEST_RANGE: i64 = 1_000_000_000_000;

/// Reads a file that a table names, relative to the directory of the experiment; or why it cannot be read. Of a
/// path that ends in `/`, the names in the directory, one per line.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Where no file can be read.
pub const NO_FILES: ReadFile<'static> = &|_| Err("no file can be read here".to_owned());

/// Decodes one table, with scripts from `files`. Returns `None` if it has problems; they are reported to its document.
pub fn decode(mut table: Table<'_>, files: ReadFile<'_>) -> Option<Decoded> {
    if table.has("script") {
        return script::decode(table, files);
    }
    let document = table.document();
    let problems_before = document.problem_count();

    table.require("name");
    let name = read_name(&mut table);
    let group = read_group(&mut table);
    let ranges = read_ranges(&mut table);
    let stages = read_stages(&mut table);
    let mut transaction = false;
    table.set_bool("transaction", &mut transaction);
    let mut throughput = Throughput::default();
    table.set_choice("throughput", Throughput::WORDS, &mut throughput);
    if let (Some(span), true) = (table.key_span("throughput"), transaction)
        && throughput == Throughput::MillionRowsRead
    {
        let message = "`transaction` has statements that read no rows of the table";
        table.problem(span, message, "remove one of them");
    }
    let answers = read_answers(&mut table);
    let whole = table.span();
    let statements = table.tables("statements");
    if statements.is_empty() {
        table.problem(
            whole,
            "a microbenchmark needs at least one statement",
            "add [[microbenchmark.statements]] with `sql` and `rows` or `affects`",
        );
    }
    let parsed: Vec<Option<ParsedStatement<'_>>> =
        statements.into_iter().map(ParsedStatement::read).collect();
    table.finish();

    let parsed: Vec<ParsedStatement<'_>> = parsed.into_iter().collect::<Option<_>>()?;
    let (name, group, ranges, stages) = (name?, group?, ranges?, stages?);
    let writes = group == Group::Writes || parsed.iter().any(ParsedStatement::writes);
    let stages = stages.unwrap_or_else(|| {
        let value = if writes { Stage::Write } else { Stage::Post };
        vec![Spanned { value, span: whole }]
    });
    let mut microbenchmarks = Vec::with_capacity(stages.len() * ranges.len());
    for stage in &stages {
        for range in &ranges {
            let mut scope = Scope::new(document, *range, &parsed);
            let statements =
                parsed.iter().filter_map(|draft| draft.statement(&mut scope)).collect();
            let microbenchmark = Microbenchmark {
                name: full_name(name.value, stage.value, *range),
                group: group.clone(),
                stage: stage.value,
                transaction,
                throughput,
                statements,
                script: None,
                answers,
            };
            if stage.value == Stage::Pre && microbenchmark.writes() {
                document.problem(
                    stage.span,
                    "a microbenchmark that writes cannot run in `pre`",
                    "`pre` is the stage before anything is written",
                );
            }
            microbenchmarks.push(microbenchmark);
        }
    }
    let name = name.map(str::to_owned);
    (document.problem_count() == problems_before).then_some(Decoded { name, microbenchmarks })
}

/// The published form of a name: `NAME_range=R`, or `NAME.pre_range=R` before the writes.
fn full_name(name: &str, stage: Stage, range: Option<i64>) -> String {
    let pre = if stage == Stage::Pre { ".pre" } else { "" };
    let range = range.map_or_else(String::new, |range| format!("_range={range}"));
    format!("{name}{pre}{range}")
}

fn read_name<'d>(table: &mut Table<'d>) -> Option<Spanned<&'d str>> {
    let name = table.string("name")?;
    if is_name(name.value) {
        return Some(name);
    }
    let message = format!("`{}` cannot be the name of a microbenchmark", name.value);
    table.reject(name.span, message, VALID_NAMES)
}

const VALID_NAMES: &str = "names are made of letters, digits and - _ . + =";

fn is_name(text: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.+=".contains(c);
    !text.is_empty() && text.chars().all(valid)
}

/// The range sizes; a single `None` if the table has no `ranges`.
fn read_ranges(table: &mut Table<'_>) -> Option<Vec<Option<i64>>> {
    let Some(ranges) = table.integers("ranges") else {
        return (!table.has("ranges")).then(|| vec![None]);
    };
    if ranges.value.is_empty() {
        table.problem(
            ranges.span,
            "`ranges` is empty",
            "leave it out where there is no range size",
        );
    }
    for (i, range) in ranges.value.iter().enumerate() {
        if !(1..=GREATEST_RANGE).contains(&range.value) {
            let help = format!("it must be from 1 to {GREATEST_RANGE}");
            table.problem(range.span, "range size is out of range", help);
        }
        report_if_twice(table, "range", &ranges.value[..i], range);
    }
    Some(ranges.value.into_iter().map(|range| Some(range.value)).collect())
}

/// A published group, or one of the experiment. A name that is probably a misspelling of a word with
/// a meaning is a problem: it would make a group of its own.
fn read_group(table: &mut Table<'_>) -> Option<Group> {
    let Some(name) = table.string("group") else {
        return (!table.has("group")).then(|| Group::Own(Group::DEFAULT_OWN.to_owned()));
    };
    let group = Group::from_name(name.value);
    let refuse = |message: String, help: &str| table.reject(name.span, message, help);
    let published = PUBLISHED_GROUPS.iter().map(Group::name);
    match (&group, nearest(name.value, published)) {
        (Group::Own(_), Some(near)) => refuse(
            format!("unknown `group`: `{}`", name.value),
            &format!("did you mean `{near}`? If not, choose a less similar name"),
        ),
        (Group::Own(_), None) if !is_name(name.value) => {
            refuse(format!("`{}` cannot be the name of a group", name.value), VALID_NAMES)
        }
        (Group::Own(_), None) if selecting_words().any(|word| word == name.value) => refuse(
            format!("`{}` cannot be the name of a group", name.value),
            "it is a word that selects several groups",
        ),
        _ => Some(group),
    }
}

/// What of the answers is compared, if it is set.
fn read_answers(table: &mut Table<'_>) -> Option<Answers> {
    table.choice("answers", Answers::WORDS).map(|answers| answers.value)
}

/// The stages; the inner `None` if the table has no `stages`.
fn read_stages(table: &mut Table<'_>) -> Option<Option<Vec<Spanned<Stage>>>> {
    let Some(words) = table.strings("stages") else {
        return (!table.has("stages")).then_some(None);
    };
    if words.value.is_empty() {
        table.problem(
            words.span,
            "`stages` is empty: it would never run",
            "leave it out for the stage that suits the statements",
        );
    }
    let names = Stage::ALL.map(Stage::name);
    let mut stages: Vec<Spanned<Stage>> = Vec::new();
    for word in words.value {
        let Some(stage) = Stage::by_name(word.value) else {
            let message = format!("unknown stage `{}`", word.value);
            let help = dbdyno_document::did_you_mean(word.value, &names);
            table.problem(word.span, message, help);
            continue;
        };
        let stage = word.map(|_| stage);
        let twice = report_if_twice(table, "stage", &stages, &stage);
        if !twice && stage.value != Stage::Pre && stages.iter().any(|s| s.value != Stage::Pre) {
            table.problem(
                word.span,
                "only `pre` can be combined with another stage",
                "two microbenchmarks would get the same name",
            );
        }
        stages.push(stage);
    }
    Some(Some(stages))
}

/// Reports a value that is among those before it. Returns whether it is.
fn report_if_twice<T: PartialEq>(
    table: &Table<'_>,
    what: &str,
    before: &[Spanned<T>],
    one: &Spanned<T>,
) -> bool {
    let twice = before.iter().any(|other| other.value == one.value);
    if twice {
        table.report(Problem::new(one.span, format!("the same {what} twice")));
    }
    twice
}

#[cfg(test)]
mod tests {
    use dbdyno_document::Document;

    use super::*;
    use crate::definition::{Bound, Counted, Distribution, ParameterSource, TableChoice, Text};

    fn decoded(text: &str) -> Vec<Microbenchmark> {
        let document = Document::parse("own.toml", text).unwrap();
        let mut root = document.root();
        let decoded =
            root.tables("microbenchmark").into_iter().filter_map(|table| decode(table, NO_FILES));
        let microbenchmarks = decoded.flat_map(|decoded| decoded.microbenchmarks).collect();
        root.finish();
        document.finish().unwrap_or_else(|problems| panic!("{problems}"));
        microbenchmarks
    }

    #[test]
    fn template_defines_one_microbenchmark_per_stage_and_range() {
        let all = decoded(
            r#"
            [[microbenchmark]]
            name = "own"
            group = "range-1"
            ranges = [10, 20]
            stages = ["pre", "post"]
            [[microbenchmark.statements]]
            sql = "SELECT {R} FROM {table} WHERE id BETWEEN :low AND :high AND id < {R}"
            draw = { low = "uniform", high = "low + {R} - 1" }
            rows = "0..{R}"
            "#,
        );
        let names: Vec<_> = all.iter().map(|one| (one.stage, one.name.as_str())).collect();
        assert_eq!(
            names,
            [
                (Stage::Pre, "own.pre_range=10"),
                (Stage::Pre, "own.pre_range=20"),
                (Stage::Post, "own_range=10"),
                (Stage::Post, "own_range=20"),
            ]
        );
        let statement = &all[1].statements[0];
        assert_eq!(
            statement.sql,
            "SELECT 20 FROM {table} WHERE id BETWEEN :low AND :high AND id < 20"
        );
        assert_eq!(statement.draw[1].1, ParameterSource::Offset { of: "low".into(), plus: 19 });
        assert_eq!(statement.expect.at_most, Bound::Count(20));
    }

    #[test]
    fn defaults_are_filled_in() {
        let text = |group| {
            format!(
                "[[microbenchmark]]\nname = 'own'\ngroup = '{group}'\n\
                 statements = [{{ sql = 'SELECT 1 FROM {{table}}', rows = 'any' }}]"
            )
        };
        let read = decoded(&text("point-1")).remove(0);
        assert_eq!((read.name.as_str(), read.stage, read.transaction), ("own", Stage::Post, false));
        assert_eq!(read.throughput, Throughput::Statements);
        let statement = &read.statements[0];
        assert_eq!((statement.repeat, statement.table), (1, TableChoice::Any));
        assert_eq!(statement.expect.what, Counted::Rows);
        assert_eq!((statement.expect.at_least, statement.expect.at_most), (Bound::Any, Bound::Any));
        assert_eq!(decoded(&text("writes"))[0].stage, Stage::Write);
    }

    #[test]
    fn group_is_optional_and_may_have_any_name() {
        let of = |group: &str, statement: &str| {
            let text = format!(
                "[[microbenchmark]]\nname = 'mine'\n{group}\nstatements = [{{ {statement} }}]"
            );
            let Microbenchmark { group, stage, .. } = decoded(&text).remove(0);
            (group.name().to_owned(), group.coarse_name().to_owned(), stage)
        };
        let own = |name: &str, stage| (name.to_owned(), name.to_owned(), stage);
        let read = "sql = 'SELECT 1 FROM {table}', rows = 'any'";
        let write = "sql = 'DELETE FROM {table}', affects = 'any'";
        assert_eq!(of("", read), own("own", Stage::Post));
        assert_eq!(of("", write), own("own", Stage::Write));
        assert_eq!(of("group = 'orders'", read), own("orders", Stage::Post));
    }

    #[test]
    fn statement_uses_parameters_of_earlier_statements() {
        let own = decoded(
            r#"
            [[microbenchmark]]
            name = "own"
            group = "writes"
            stages = ["last"]
            transaction = true
            [[microbenchmark.statements]]
            sql = "DELETE FROM {table} WHERE id IN (:ids) OR id = :id"
            draw = { ids = "list(3, zipf(0.5))", id = "fixed(7)" }
            affects = "0..keys"
            repeat = 2
            [[microbenchmark.statements]]
            sql = "INSERT INTO {table} VALUES (:next, :id, :c, :pad)"
            draw = { next = "id + 1", c = "c", pad = "pad" }
            table = "same"
            affects = 1
            "#,
        )
        .remove(0);
        assert!(own.writes() && own.transaction);
        let [delete, insert] = &own.statements[..] else { panic!() };
        let list = ParameterSource::KeyList { count: 3, distribution: Distribution::Zipf(0.5) };
        assert_eq!(
            delete.draw,
            [("ids".to_owned(), list), ("id".to_owned(), ParameterSource::Fixed(7))]
        );
        assert_eq!((delete.expect.at_least, delete.expect.at_most), (Bound::Count(0), Bound::Keys));
        assert_eq!((delete.expect.what, delete.repeat), (Counted::Affected, 2));
        assert_eq!(insert.table, TableChoice::Same);
        assert_eq!(insert.draw[1].1, ParameterSource::Text(Text::C));
    }
}
