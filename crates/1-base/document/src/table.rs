use std::borrow::Cow;
use std::ops::RangeInclusive;

use dbdyno_units::{Bytes, Nanos, Share};
use toml_edit::{Item, TableLike, Value};

use crate::{BadValue, Document, Problem, Span, Spanned, did_you_mean, nearest};

/// Reads one table, key by key.
///
/// Every key that is read is a valid key; [`Table::finish`] then reports the others. Methods that
/// read a value return `None` if the key is missing, and also if its value is invalid, which is
/// reported.
#[must_use = "call `finish` to report unknown keys"]
pub struct Table<'d> {
    document: &'d Document,
    entries: &'d dyn TableLike,
    path: String,
    form: Form,
    span: Span,
    read_keys: Vec<&'static str>,
}

/// The notation of a table, on which its name in messages depends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Root,
    Header,
    ArrayHeader,
    Inline,
}

/// The settings of an array, in its order.
pub type SettingList<'d> = Vec<Spanned<Setting<'d>>>;

/// The value of a key with a user-defined name.
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

/// An integer, or a quantity with its unit.
pub trait Number: Sized + PartialOrd + std::fmt::Display {
    /// The type of a value, and of the elements of an array, in messages.
    const EXPECTED: [&'static str; 2];

    /// The number of a value of this type.
    fn of(value: &Value) -> Option<Result<Self, BadValue>>;
}

const INTEGER: [&str; 2] = ["an integer", "integers"];

impl Number for i64 {
    const EXPECTED: [&'static str; 2] = INTEGER;

    fn of(value: &Value) -> Option<Result<Self, BadValue>> {
        value.as_integer().map(Ok)
    }
}

impl Number for u32 {
    const EXPECTED: [&'static str; 2] = INTEGER;

    fn of(value: &Value) -> Option<Result<Self, BadValue>> {
        // The maximum is outside of every range.
        value.as_integer().map(|number| Ok(Self::try_from(number).unwrap_or(Self::MAX)))
    }
}

impl Number for Nanos {
    const EXPECTED: [&'static str; 2] = ["a duration such as \"50ms\"", "durations"];

    fn of(value: &Value) -> Option<Result<Self, BadValue>> {
        value.as_str().map(crate::parse_duration)
    }
}

impl Number for Share {
    const EXPECTED: [&'static str; 2] = ["a percentage such as \"0.5%\"", "percentages"];

    fn of(value: &Value) -> Option<Result<Self, BadValue>> {
        value.as_str().map(crate::parse_share)
    }
}

/// A size with its unit, or an integer number of bytes.
impl Number for Bytes {
    const EXPECTED: [&'static str; 2] = ["an integer or a string", "sizes"];

    fn of(value: &Value) -> Option<Result<Self, BadValue>> {
        // A negative size is outside of every range, and must not wrap around to a huge one.
        let bytes = |bytes| Ok(Self::from_bytes(u64::try_from(bytes).unwrap_or(u64::MAX)));
        value.as_integer().map(bytes).or_else(|| value.as_str().map(crate::parse_size))
    }
}

impl<'d> Table<'d> {
    pub(crate) fn root(document: &'d Document, entries: &'d dyn TableLike) -> Self {
        let span = Span::default();
        let (path, read_keys) = (String::new(), Vec::new());
        Self { document, entries, path, form: Form::Root, span, read_keys }
    }

    /// The span of the table's header, or of the whole inline table.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The document of the table.
    pub fn document(&self) -> &'d Document {
        self.document
    }

    /// The table's name in messages, such as `[schedule]`; empty for the top level.
    pub fn title(&self) -> String {
        match self.form {
            Form::Root => String::new(),
            Form::Header => format!("[{}]", self.path),
            Form::ArrayHeader => format!("[[{}]]", self.path),
            Form::Inline => format!("`{}`", self.path),
        }
    }

    /// Adds a problem to the document.
    pub fn report(&self, problem: Problem) {
        self.document.report(problem);
    }

    /// Adds a problem with help to the document.
    pub fn problem(&self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.document.problem(span, message, help);
    }

    /// Like [`Table::problem`]; returns `None`, for a reader that the problem ends.
    pub fn reject<T>(
        &self,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Option<T> {
        self.problem(span, message, help);
        None
    }

    /// Whether the key is present, with any type.
    pub fn has(&self, key: &str) -> bool {
        self.item(key).is_some()
    }

    /// Reports the key if it is missing.
    pub fn require(&self, key: &str) {
        if !self.has(key) {
            self.report(Problem::new(self.span, format!("missing key `{key}`{}", self.in_title())));
        }
    }

    /// A string.
    pub fn string(&mut self, key: &'static str) -> Option<Spanned<&'d str>> {
        self.read(key, "a string", Item::as_str)
    }

    /// Sets `field` to the number at the key, if there is a valid one within `range`.
    pub fn set<T: Number>(&mut self, key: &'static str, range: RangeInclusive<T>, field: &mut T) {
        if let Some(value) = self.number(key, range) {
            *field = value;
        }
    }

    /// The number at the key, within `range`.
    pub fn number<T: Number>(&mut self, key: &'static str, range: RangeInclusive<T>) -> Option<T> {
        self.number_at(key, range).map(|number| number.value)
    }

    /// The number at the key, within `range`, with its position.
    pub fn number_at<T: Number>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<T>,
    ) -> Option<Spanned<T>> {
        let float = self.item(key).and_then(|item| Some((item.as_float()?, item.span())));
        if let Some((float, span)) = float.filter(|(float, _)| float.fract() == 0.0)
            && T::EXPECTED == INTEGER
        {
            self.mark(key);
            let message = format!("`{key}` must be an integer, not a float");
            return self.reject(span_of(span), message, format!("write `{float}`"));
        }
        let number = self.read(key, T::EXPECTED[0], |item| T::of(item.as_value()?))?;
        self.checked(key, number, &range)
    }

    /// A number or an array of numbers, each within `range`.
    pub fn one_or_more<T: Number>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<T>,
    ) -> Option<Spanned<Vec<Spanned<T>>>> {
        let [expected, elements] = T::EXPECTED;
        let numbers = if self.item(key).is_some_and(Item::is_array) {
            self.array(key, elements, T::of)?
        } else {
            let expected = format!("{expected} or an array of {elements}");
            let one = self.read(key, &expected, |item| T::of(item.as_value()?))?;
            Spanned { span: one.span, value: vec![one] }
        };
        let checked = numbers.value.into_iter().map(|number| self.checked(key, number, &range));
        Some(Spanned { value: checked.collect::<Option<_>>()?, span: numbers.span })
    }

    /// Sets `field` to the boolean at the key, if there is one.
    pub fn set_bool(&mut self, key: &'static str, field: &mut bool) {
        *field = self.bool(key).map_or(*field, |value| value.value);
    }

    /// Sets `field` to the value of the name at the key, if it is one of the given names.
    pub fn set_choice<T: Clone>(&mut self, key: &'static str, words: &[(&str, T)], field: &mut T) {
        if let Some(value) = self.choice(key, words) {
            *field = value.value;
        }
    }

    /// `true` or `false`.
    pub fn bool(&mut self, key: &'static str) -> Option<Spanned<bool>> {
        self.read(key, "true or false", Item::as_bool)
    }

    /// The boolean at a key, without marking the key as read.
    pub fn peek_bool(&self, key: &str) -> Option<bool> {
        self.item(key).and_then(Item::as_bool)
    }

    /// An integer or a string, as text.
    pub fn scalar(&mut self, key: &'static str) -> Option<Spanned<Cow<'d, str>>> {
        self.read(key, "an integer or a string", |item| {
            let integer = item.as_integer().map(|integer| Cow::Owned(integer.to_string()));
            integer.or_else(|| item.as_str().map(Cow::Borrowed))
        })
    }

    /// One of the given names; returns the value of that name.
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
            self.problem(word.span, message, did_you_mean(word.value, &names));
        }
        found.map(|(_, value)| word.map(|_| value.clone()))
    }

    /// An array of strings.
    pub fn strings(&mut self, key: &'static str) -> Option<Spanned<Vec<Spanned<&'d str>>>> {
        self.array(key, "strings", Value::as_str)
    }

    /// A string or an array of strings.
    pub fn one_or_more_strings(
        &mut self,
        key: &'static str,
    ) -> Option<Spanned<Vec<Spanned<&'d str>>>> {
        if self.item(key).is_some_and(Item::is_array) {
            return self.strings(key);
        }
        let one = self.read(key, "a string or an array of strings", Item::as_str)?;
        Some(one.map(|_| vec![one]))
    }

    /// An array of integers.
    pub fn integers(&mut self, key: &'static str) -> Option<Spanned<Vec<Spanned<i64>>>> {
        self.array(key, "integers", Value::as_integer)
    }

    /// Whether the value of a key is a table, for keys that also accept a short form.
    pub fn is_table(&self, key: &str) -> bool {
        self.item(key).is_some_and(Item::is_table_like)
    }

    /// A table inside this one.
    pub fn table(&mut self, key: &'static str) -> Option<Self> {
        let entries = self.read(key, "a table", Item::as_table_like)?;
        let inline = self.item(key).is_some_and(Item::is_value);
        let form = if inline { Form::Inline } else { Form::Header };
        Some(self.inner(key, form, entries.value, entries.span))
    }

    /// The tables of an array, in either notation; empty if the key is missing.
    pub fn tables(&mut self, key: &'static str) -> Vec<Self> {
        self.mark(key);
        match self.item(key) {
            None => Vec::new(),
            Some(Item::ArrayOfTables(array)) => array
                .iter()
                .map(|table| self.inner(key, Form::ArrayHeader, table, span_of(table.span())))
                .collect(),
            Some(_) => {
                let tables = self.array(key, "tables", |value| value.as_inline_table());
                let tables = tables.into_iter().flat_map(|tables| tables.value);
                tables.map(|one| self.inner(key, Form::Inline, one.value, one.span)).collect()
            }
        }
    }

    /// All keys that were not read yet, with user-defined names and string values.
    pub fn named_strings(&mut self) -> Vec<(Spanned<&'d str>, Spanned<&'d str>)> {
        self.named("a string", Item::as_str)
    }

    /// All keys that were not read yet, with user-defined names and tables as values.
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

    /// All keys that were not read yet, with user-defined names and settings as values.
    pub fn named_settings(&mut self) -> Vec<(Spanned<&'d str>, Spanned<Setting<'d>>)> {
        self.named("a string, a number, true or false", |item| setting(item.as_value()?))
    }

    /// All keys that were not read yet, with user-defined names and lists of settings as values.
    pub fn named_setting_lists(&mut self) -> Vec<(Spanned<&'d str>, Spanned<SettingList<'d>>)> {
        let expected = "an array of strings, numbers, or true and false";
        self.named(expected, |item| {
            let values = item.as_array()?.iter();
            let values = values
                .map(|value| Some(Spanned { value: setting(value)?, span: span_of(value.span()) }));
            values.collect()
        })
    }

    /// The span of a key.
    pub fn key_span(&self, key: &str) -> Option<Span> {
        self.has(key).then(|| self.span_of_key(key))
    }

    /// Reports a key, if present, that is valid in other tables but not in this one.
    pub fn refuse(&mut self, key: &'static str, why: &str, help: impl Into<String>) {
        if let Some(span) = self.key_span(key) {
            self.read_keys.push(key);
            self.problem(span, format!("`{key}` {why}"), help);
        }
    }

    /// Finishes reading: reports the keys that were not read.
    pub fn finish(self) {
        for (key, _) in self.entries.iter().filter(|(key, _)| !self.read_keys.contains(key)) {
            let span = self.span_of_key(key);
            let problem = Problem::new(span, format!("unknown key `{key}`{}", self.in_title()));
            let near = nearest(key, self.read_keys.iter().copied());
            self.report(match near {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => problem,
            });
        }
    }

    fn item(&self, key: &str) -> Option<&'d Item> {
        self.entries.get(key)
    }

    /// Makes a key valid.
    fn mark(&mut self, key: &'static str) {
        self.read_keys.push(key);
        self.document.keys.borrow_mut().insert(self.path_of(key));
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn inner(&self, key: &str, form: Form, entries: &'d dyn TableLike, span: Span) -> Self {
        let path = self.path_of(key);
        Self { document: self.document, entries, path, form, span, read_keys: Vec::new() }
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
        for (key, item) in self.entries.iter().filter(|(key, _)| !self.read_keys.contains(key)) {
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
        self.mark(key);
        let item = self.item(key)?;
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

    fn checked<T: Number>(
        &self,
        key: &str,
        number: Spanned<Result<T, BadValue>>,
        range: &RangeInclusive<T>,
    ) -> Option<Spanned<T>> {
        let Spanned { value, span } = number;
        match value {
            Ok(value) if range.contains(&value) => Some(Spanned { value, span }),
            Ok(_) => {
                let help = format!("it must be from {} to {}", range.start(), range.end());
                self.reject(span, format!("`{key}` is out of range"), help)
            }
            Err(bad) => self.reject(span, format!("`{key}`: {}", bad.message), bad.help),
        }
    }

    fn span_of_key(&self, key: &str) -> Span {
        span_of(self.entries.key(key).and_then(toml_edit::Key::span))
    }
}

/// A value as a setting.
fn setting(value: &Value) -> Option<Setting<'_>> {
    match value {
        Value::String(text) => Some(Setting::String(text.value())),
        Value::Integer(number) => Some(Setting::Integer(*number.value())),
        Value::Float(number) => Some(Setting::Float(*number.value())),
        Value::Boolean(value) => Some(Setting::Boolean(*value.value())),
        Value::Datetime(_) | Value::Array(_) | Value::InlineTable(_) => None,
    }
}

/// A TOML type's name with its article.
fn a_type(name: &str) -> String {
    let article = if name.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {name}")
}

/// The span of a parsed item; a missing span becomes the start of the file.
fn span_of(range: Option<std::ops::Range<usize>>) -> Span {
    range.unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
