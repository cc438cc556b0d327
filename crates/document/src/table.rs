use std::ops::RangeInclusive;

use dbdyno_units::{Bytes, Nanos, Share};
use toml_edit::{Item, TableLike, Value};

use crate::{BadValue, Document, Problem, Span, Spanned, did_you_mean, nearest};

/// Reads one table, key by key.
///
/// A key that is asked for is a valid key; after all have been asked for, [`Table::finish`] reports
/// the others. Every method for a value returns `None` when the key is not there, and also when its
/// value does not fit, which is reported.
#[must_use = "call `finish` to report unknown keys"]
pub struct Table<'d> {
    document: &'d Document,
    entries: &'d dyn TableLike,
    path: String,
    form: Form,
    span: Span,
    asked: Vec<&'static str>,
}

/// How a table is written, and with it how messages name it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Root,
    Header,
    ArrayHeader,
    Inline,
}

/// An integer or a string, for keys that can be either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar<'d> {
    /// A TOML integer.
    Integer(i64),
    /// A TOML string.
    String(&'d str),
}

/// The value of a key that the user chose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting<'d> {
    /// A TOML string.
    String(&'d str),
    /// A TOML integer.
    Integer(i64),
    /// A TOML float, not necessarily finite.
    Float(f64),
    /// A TOML boolean.
    Boolean(bool),
}

impl<'d> Table<'d> {
    pub(crate) fn root(document: &'d Document, entries: &'d dyn TableLike) -> Self {
        let span = Span::default();
        Self { document, entries, path: String::new(), form: Form::Root, span, asked: Vec::new() }
    }

    /// Where the table's header stands, or all of an inline table.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// The document that the table is in.
    #[must_use]
    pub fn document(&self) -> &'d Document {
        self.document
    }

    /// The table as messages name it, such as `[schedule]`; empty for the whole file.
    #[must_use]
    pub fn title(&self) -> String {
        match self.form {
            Form::Root => String::new(),
            Form::Header => format!("[{}]", self.path),
            Form::ArrayHeader => format!("[[{}]]", self.path),
            Form::Inline => format!("`{}`", self.path),
        }
    }

    /// Adds to what is wrong with the document.
    pub fn report(&self, problem: Problem) {
        self.document.report(problem);
    }

    /// Whether the key is there, of whatever type.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Reports the key as missing unless it is there.
    pub fn require(&self, key: &str) {
        if !self.has(key) {
            self.report(Problem::new(self.span, format!("missing key `{key}`{}", self.in_title())));
        }
    }

    /// A string.
    pub fn string(&mut self, key: &'static str) -> Option<Spanned<&'d str>> {
        self.read(key, "a string", Item::as_str)
    }

    /// An integer within `range`.
    pub fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<i64>,
    ) -> Option<Spanned<i64>> {
        let value = self.read(key, "an integer", Item::as_integer)?;
        self.within(key, value, range)
    }

    /// `true` or `false`.
    pub fn bool(&mut self, key: &'static str) -> Option<Spanned<bool>> {
        self.read(key, "true or false", Item::as_bool)
    }

    /// An integer or a string.
    pub fn scalar(&mut self, key: &'static str) -> Option<Spanned<Scalar<'d>>> {
        self.read(key, "an integer or a string", |item| {
            let integer = item.as_integer().map(Scalar::Integer);
            integer.or_else(|| item.as_str().map(Scalar::String))
        })
    }

    /// A length of time with its unit, within `range`.
    pub fn duration(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Nanos>,
    ) -> Option<Spanned<Nanos>> {
        let text = self.read(key, "a length of time such as \"50ms\"", Item::as_str)?;
        let value = self.parsed(key, text, crate::parse_duration)?;
        self.within(key, value, range)
    }

    /// A share in percent, within `range`.
    pub fn share(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Share>,
    ) -> Option<Spanned<Share>> {
        let text = self.read(key, "a share such as \"0.5%\"", Item::as_str)?;
        let value = self.parsed(key, text, crate::parse_share)?;
        self.within(key, value, range)
    }

    /// A size with its unit or an integer of bytes, within `range`.
    pub fn size(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Bytes>,
    ) -> Option<Spanned<Bytes>> {
        let scalar = self.scalar(key)?;
        let value = match scalar.value {
            Scalar::String(text) => self.parsed(key, scalar.map(|_| text), crate::parse_size)?,
            // A negative size is out of every range that does not start at zero; and it must not
            // wrap around to a huge one.
            Scalar::Integer(bytes) => {
                scalar.map(|_| Bytes::from_bytes(u64::try_from(bytes).unwrap_or(0)))
            }
        };
        self.within(key, value, range)
    }

    /// One of the given words: their values are looked up by name.
    pub fn choice<T: Clone>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
    ) -> Option<Spanned<T>> {
        let word = self.string(key)?;
        let found = words.iter().find(|(name, _)| *name == word.value);
        if found.is_none() {
            let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
            let message = format!("unknown `{key}`: `{}`", word.value);
            self.report(Problem::new(word.span, message).help(did_you_mean(word.value, &names)));
        }
        found.map(|(_, value)| word.map(|_| value.clone()))
    }

    /// An array of strings.
    pub fn strings(&mut self, key: &'static str) -> Option<Spanned<Vec<Spanned<&'d str>>>> {
        self.array(key, "strings", Value::as_str)
    }

    /// An array of integers.
    pub fn integers(&mut self, key: &'static str) -> Option<Spanned<Vec<Spanned<i64>>>> {
        self.array(key, "integers", Value::as_integer)
    }

    /// An integer or an array of integers, each within `range`.
    pub fn one_or_more_integers(
        &mut self,
        key: &'static str,
        range: RangeInclusive<i64>,
    ) -> Option<Spanned<Vec<Spanned<i64>>>> {
        let values = match self.entries.get(key) {
            Some(item) if item.is_array() => self.array(key, "integers", Value::as_integer)?,
            _ => {
                let one = self.read(key, "an integer or an array of integers", Item::as_integer)?;
                one.map(|_| vec![one])
            }
        };
        let span = values.span;
        let values = values.value.into_iter();
        let valid: Option<_> = values.map(|value| self.within(key, value, range.clone())).collect();
        Some(Spanned { value: valid?, span })
    }

    /// A length of time with its unit or an array of them, each within `range`.
    pub fn one_or_more_durations(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Nanos>,
    ) -> Option<Spanned<Vec<Spanned<Nanos>>>> {
        let texts = match self.entries.get(key) {
            Some(item) if item.is_array() => self.array(key, "lengths of time", Value::as_str)?,
            _ => {
                let expected = "a length of time such as \"50ms\" or an array of them";
                let one = self.read(key, expected, Item::as_str)?;
                one.map(|_| vec![one])
            }
        };
        let span = texts.span;
        let values: Option<_> = texts
            .value
            .into_iter()
            .map(|text| {
                let value = self.parsed(key, text, crate::parse_duration)?;
                self.within(key, value, range.clone())
            })
            .collect();
        Some(Spanned { value: values?, span })
    }

    /// Whether a key holds a table, for keys that can also be something shorter.
    #[must_use]
    pub fn is_table(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(Item::is_table_like)
    }

    /// Another table inside this one.
    pub fn table(&mut self, key: &'static str) -> Option<Self> {
        let entries = self.read(key, "a table", Item::as_table_like)?;
        let inline = self.entries.get(key).is_some_and(Item::is_value);
        let form = if inline { Form::Inline } else { Form::Header };
        Some(self.inner(key, form, entries.value, entries.span))
    }

    /// The tables of an array, written with headers or inline; empty when the key is not there.
    pub fn tables(&mut self, key: &'static str) -> Vec<Self> {
        self.asked.push(key);
        match self.entries.get(key) {
            None => Vec::new(),
            Some(Item::ArrayOfTables(array)) => array
                .iter()
                .map(|table| self.inner(key, Form::ArrayHeader, table, span_of(table.span())))
                .collect(),
            Some(_) => {
                let tables = self.array(key, "tables", |value| value.as_inline_table());
                let tables = tables.map_or_else(Vec::new, |tables| tables.value);
                tables
                    .into_iter()
                    .map(|table| self.inner(key, Form::Inline, table.value, table.span))
                    .collect()
            }
        }
    }

    /// All keys that were not asked for, as names that the user chose for strings.
    pub fn named_strings(&mut self) -> Vec<(Spanned<&'d str>, Spanned<&'d str>)> {
        self.named("a string", Item::as_str)
    }

    /// All keys that were not asked for, as names that the user chose for tables.
    pub fn named_tables(&mut self) -> Vec<(Spanned<&'d str>, Self)> {
        let tables = self.named("a table", |item| Some((item.as_table_like()?, item.is_value())));
        tables
            .into_iter()
            .map(|(name, Spanned { value: (entries, inline), span })| {
                let form = if inline { Form::Inline } else { Form::Header };
                (name, self.inner(name.value, form, entries, span))
            })
            .collect()
    }

    /// All keys that were not asked for, as names that the user chose for settings.
    pub fn named_settings(&mut self) -> Vec<(Spanned<&'d str>, Spanned<Setting<'d>>)> {
        self.named("a string, a number, true or false", |item| match item.as_value()? {
            Value::String(text) => Some(Setting::String(text.value())),
            Value::Integer(number) => Some(Setting::Integer(*number.value())),
            Value::Float(number) => Some(Setting::Float(*number.value())),
            Value::Boolean(value) => Some(Setting::Boolean(*value.value())),
            Value::Datetime(_) | Value::Array(_) | Value::InlineTable(_) => None,
        })
    }

    /// Where a key stands.
    #[must_use]
    pub fn key_span(&self, key: &str) -> Option<Span> {
        self.has(key).then(|| self.span_of_key(key))
    }

    /// Reports a key that is valid elsewhere and has no place here, when it is there.
    pub fn refuse(&mut self, key: &'static str, why: &str, help: impl Into<String>) {
        if let Some(span) = self.key_span(key) {
            self.asked.push(key);
            self.report(Problem::new(span, format!("`{key}` {why}")).help(help));
        }
    }

    /// Ends the reading: reports the keys that were never asked for.
    pub fn finish(self) {
        for (key, _) in self.entries.iter() {
            if self.asked.contains(&key) {
                continue;
            }
            let span = self.span_of_key(key);
            let problem = Problem::new(span, format!("unknown key `{key}`{}", self.in_title()));
            let near = nearest(key, self.asked.iter().copied());
            self.report(match near {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => problem,
            });
        }
    }

    fn inner(&self, key: &str, form: Form, entries: &'d dyn TableLike, span: Span) -> Self {
        let path =
            if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { document: self.document, entries, path, form, span, asked: Vec::new() }
    }

    fn in_title(&self) -> String {
        match self.form {
            Form::Root => String::new(),
            _ => format!(" in {}", self.title()),
        }
    }

    fn named<T>(
        &self,
        expected: &str,
        get: impl Fn(&'d Item) -> Option<T>,
    ) -> Vec<(Spanned<&'d str>, Spanned<T>)> {
        let mut named = Vec::new();
        for (key, item) in self.entries.iter() {
            if self.asked.contains(&key) {
                continue;
            }
            let key = Spanned { value: key, span: self.span_of_key(key) };
            match get(item) {
                Some(value) => named.push((key, Spanned { value, span: span_of(item.span()) })),
                None => self.report_type(key.value, expected, item.type_name(), item.span()),
            }
        }
        named
    }

    fn read<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        get: impl FnOnce(&'d Item) -> Option<T>,
    ) -> Option<Spanned<T>> {
        self.asked.push(key);
        let item = self.entries.get(key)?;
        let value = get(item);
        if value.is_none() {
            self.report_type(key, expected, item.type_name(), item.span());
        }
        value.map(|value| Spanned { value, span: span_of(item.span()) })
    }

    fn array<T>(
        &mut self,
        key: &'static str,
        elements: &str,
        get: impl Fn(&'d Value) -> Option<T>,
    ) -> Option<Spanned<Vec<Spanned<T>>>> {
        let expected = format!("an array of {elements}");
        let array = self.read(key, &expected, Item::as_array)?;
        let mut values = Vec::with_capacity(array.value.len());
        for element in array.value {
            match get(element) {
                Some(value) => values.push(Spanned { value, span: span_of(element.span()) }),
                None => {
                    let message = format!(
                        "`{key}` must be {expected}: this is {}",
                        a_type(element.type_name())
                    );
                    self.report(Problem::new(span_of(element.span()), message));
                }
            }
        }
        Some(array.map(|_| values))
    }

    fn report_type(
        &self,
        key: &str,
        expected: &str,
        found: &str,
        span: Option<std::ops::Range<usize>>,
    ) {
        let message = format!("`{key}` must be {expected}, not {}", a_type(found));
        self.report(Problem::new(span_of(span), message));
    }

    fn parsed<T>(
        &self,
        key: &str,
        text: Spanned<&str>,
        parse: impl FnOnce(&str) -> Result<T, BadValue>,
    ) -> Option<Spanned<T>> {
        match parse(text.value) {
            Ok(value) => Some(text.map(|_| value)),
            Err(bad) => {
                let message = format!("`{key}`: {}", bad.message);
                self.report(Problem::new(text.span, message).help(bad.help));
                None
            }
        }
    }

    fn within<T: PartialOrd + std::fmt::Display>(
        &self,
        key: &str,
        value: Spanned<T>,
        range: RangeInclusive<T>,
    ) -> Option<Spanned<T>> {
        if range.contains(&value.value) {
            return Some(value);
        }
        let help = format!("it must be from {} to {}", range.start(), range.end());
        self.report(Problem::new(value.span, format!("`{key}` is out of range")).help(help));
        None
    }

    fn span_of_key(&self, key: &str) -> Span {
        span_of(self.entries.key(key).and_then(toml_edit::Key::span))
    }
}

/// A TOML type's name with its article.
fn a_type(name: &str) -> String {
    let article = if name.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {name}")
}

/// Everything that was parsed has a place; what has none is shown at the start of the file.
fn span_of(range: Option<std::ops::Range<usize>>) -> Span {
    range.unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    /// The problems of a text, read by `read`.
    fn problems(text: &str, read: impl FnOnce(&mut Table<'_>)) -> String {
        let document = Document::parse("test.toml", text).unwrap();
        let mut root = document.root();
        read(&mut root);
        root.finish();
        document.finish().map_or_else(|problems| problems.to_string(), |()| "none".to_owned())
    }

    #[test]
    fn reads_values_of_every_type() {
        let text = r#"
            name = "quick"
            rows = 100_000
            control = true
            slice = "50ms"
            target = "0.5%"
            page = "4KiB"
            cache = 4096
            names = ["a", "b"]
            ranges = [10, 100]
            inline = { x = 1 }
            [[item]]
            word = "first"
            [[item]]
            word = "second"
        "#;
        let none = problems(text, |root| {
            assert_eq!(root.string("name").unwrap().value, "quick");
            assert_eq!(root.integer("rows", 1..=1_000_000).unwrap().value, 100_000);
            assert!(root.bool("control").unwrap().value);
            let day = Nanos::from_secs(86_400);
            assert_eq!(
                root.duration("slice", Nanos::ZERO..=day).unwrap().value,
                Nanos::from_millis(50)
            );
            let all = Share::from_percent(100.0);
            assert_eq!(
                root.share("target", Share::default()..=all).unwrap().value,
                Share::from_percent(0.5)
            );
            let most = Bytes::from_mib(1);
            for (key, bytes) in [("page", 4096), ("cache", 4096)] {
                let size = root.size(key, Bytes::from_bytes(1)..=most).unwrap();
                assert_eq!(size.value, Bytes::from_bytes(bytes));
            }
            let names = root.strings("names").unwrap().value;
            assert_eq!(names.iter().map(|name| name.value).collect::<Vec<_>>(), ["a", "b"]);
            let ranges = root.integers("ranges").unwrap().value;
            assert_eq!(ranges.iter().map(|range| range.value).collect::<Vec<_>>(), [10, 100]);
            let mut inline = root.table("inline").unwrap();
            assert_eq!(inline.scalar("x").unwrap().value, Scalar::Integer(1));
            assert_eq!(inline.title(), "`inline`");
            inline.finish();
            let words: Vec<_> = root
                .tables("item")
                .into_iter()
                .map(|mut item| item.string("word").unwrap().value)
                .collect();
            assert_eq!(words, ["first", "second"]);
            assert_eq!(root.string("absent"), None);
        });
        assert_eq!(none, "none");
    }

    #[test]
    fn reports_what_does_not_fit() {
        let text = "name = 1\nrows = 0\ncontrol = \"yes\"\nslice = 50\nnames = [\"a\", 2]\n\
                    item = 3\ncache = -1\nmode = \"wall\"\nslip = \"50msec\"";
        let shown = problems(text, |root| {
            root.string("name");
            root.integer("rows", 1..=10);
            root.bool("control");
            root.duration("slice", Nanos::ZERO..=Nanos::from_secs(1));
            root.strings("names");
            assert!(root.tables("item").is_empty());
            root.size("cache", Bytes::from_bytes(1)..=Bytes::from_kib(1));
            root.choice("mode", &[("wal", 1), ("off", 2)]);
            root.duration("slip", Nanos::ZERO..=Nanos::from_secs(1));
        });
        assert_snapshot!(shown, @r#"
        error: `name` must be a string, not an integer
         --> test.toml:1:8
          |
        1 | name = 1
          |        ^

        error: `rows` is out of range
         --> test.toml:2:8
          |
        2 | rows = 0
          |        ^ it must be from 1 to 10

        error: `control` must be true or false, not a string
         --> test.toml:3:11
          |
        3 | control = "yes"
          |           ^^^^^

        error: `slice` must be a length of time such as "50ms", not an integer
         --> test.toml:4:9
          |
        4 | slice = 50
          |         ^^

        error: `names` must be an array of strings: this is an integer
         --> test.toml:5:15
          |
        5 | names = ["a", 2]
          |               ^

        error: `item` must be an array of tables, not an integer
         --> test.toml:6:8
          |
        6 | item = 3
          |        ^

        error: `cache` is out of range
         --> test.toml:7:9
          |
        7 | cache = -1
          |         ^^ it must be from 1 B to 1 KiB

        error: unknown `mode`: `wall`
         --> test.toml:8:8
          |
        8 | mode = "wall"
          |        ^^^^^^ did you mean `wal`?

        error: `slip`: `msec` is not a unit of time
         --> test.toml:9:8
          |
        9 | slip = "50msec"
          |        ^^^^^^^^ units are ns, us, ms, s, min and h
        "#);
    }

    #[test]
    fn reads_one_integer_or_more() {
        let shown = problems(
            "one = 3\nmore = [1, 2]\nnone = []\nout = [1, 9]\ntext = 'x'\nmixed = [1, 'x']",
            |root| {
                let mut read = |key| {
                    let list = root.one_or_more_integers(key, 1..=5)?.value;
                    Some(list.into_iter().map(|one| one.value).collect::<Vec<_>>())
                };
                assert_eq!(read("one"), Some(vec![3]));
                assert_eq!(read("more"), Some(vec![1, 2]));
                assert_eq!(read("none"), Some(vec![]));
                assert_eq!(read("absent"), None);
                assert_eq!(read("out"), None);
                read("text");
                read("mixed");
            },
        );
        assert_snapshot!(shown, @r"
        error: `out` is out of range
         --> test.toml:4:11
          |
        4 | out = [1, 9]
          |           ^ it must be from 1 to 5

        error: `text` must be an integer or an array of integers, not a string
         --> test.toml:5:8
          |
        5 | text = 'x'
          |        ^^^

        error: `mixed` must be an array of integers: this is a string
         --> test.toml:6:13
          |
        6 | mixed = [1, 'x']
          |             ^^^
        ");
    }

    #[test]
    fn reads_settings_of_any_name() {
        let shown = problems(
            "[set]\na_b = 'x'\n\"c.d\" = -1\ne = 0.5\nf = true\ng = [1]\nh.i = 1\nj = 1979-05-27",
            |root| {
                let settings = root.table("set").unwrap().named_settings();
                let settings: Vec<_> =
                    settings.into_iter().map(|(name, value)| (name.value, value.value)).collect();
                assert_eq!(
                    settings,
                    [
                        ("a_b", Setting::String("x")),
                        ("c.d", Setting::Integer(-1)),
                        ("e", Setting::Float(0.5)),
                        ("f", Setting::Boolean(true)),
                    ]
                );
            },
        );
        assert_snapshot!(shown, @r"
        error: `g` must be a string, a number, true or false, not an array
         --> test.toml:6:5
          |
        6 | g = [1]
          |     ^^^

        error: `h` must be a string, a number, true or false, not a table
         --> test.toml:7:1
          |
        7 | h.i = 1
          | ^

        error: `j` must be a string, a number, true or false, not a datetime
         --> test.toml:8:5
          |
        8 | j = 1979-05-27
          |     ^^^^^^^^^^
        ");
    }

    #[test]
    fn refuses_keys_that_belong_elsewhere() {
        let shown = problems("there = 1\nother = 2", |root| {
            root.integer("other", 0..=9);
            root.refuse("there", "has no place here", "put it elsewhere");
            root.refuse("absent", "has no place here", "put it elsewhere");
        });
        assert_snapshot!(shown, @r"
        error: `there` has no place here
         --> test.toml:1:1
          |
        1 | there = 1
          | ^^^^^ put it elsewhere
        ");
    }

    #[test]
    fn reports_unknown_and_missing_keys() {
        let text = "nmae = 1\n[schedule]\nslcie = 1\nbudget = 2\n[[candidate]]\nx.y = 1";
        let shown = problems(text, |root| {
            root.require("name");
            root.string("name");
            let mut schedule = root.table("schedule").unwrap();
            schedule.string("slice");
            schedule.finish();
            for mut candidate in root.tables("candidate") {
                candidate.require("name");
                candidate.string("name");
                candidate.finish();
            }
        });
        assert_snapshot!(shown, @r"
        error: missing key `name`
         --> test.toml:1:1
          |
        1 | nmae = 1
          | ^

        error: unknown key `nmae`
         --> test.toml:1:1
          |
        1 | nmae = 1
          | ^^^^ did you mean `name`?

        error: unknown key `slcie` in [schedule]
         --> test.toml:3:1
          |
        3 | slcie = 1
          | ^^^^^ did you mean `slice`?

        error: unknown key `budget` in [schedule]
         --> test.toml:4:1
          |
        4 | budget = 2
          | ^^^^^^

        error: missing key `name` in [[candidate]]
         --> test.toml:5:1
          |
        5 | [[candidate]]
          | ^^^^^^^^^^^^^

        error: unknown key `x` in [[candidate]]
         --> test.toml:6:1
          |
        6 | x.y = 1
          | ^
        ");
    }
}
