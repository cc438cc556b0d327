//! The document: sections of tables, facts, text and charts, as plain data.

use std::convert::Infallible;

/// The charts of a document without charts.
pub type NoChart = Infallible;

/// A part of a document under a title.
#[derive(Clone, Debug, PartialEq)]
pub struct Section<C = NoChart> {
    /// The anchor on a page.
    pub id: &'static str,
    pub title: String,
    /// What the title leaves open: unit, whether more is better.
    pub about: String,
    pub blocks: Vec<Block<C>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Block<C = NoChart> {
    Table(Table),
    Text(Text),
    Facts(Facts),
    /// A title inside a section, and what it is about.
    Title(String, String),
    /// A chart; terminals and Markdown have none.
    Chart(C),
    /// What a page shows only if asked for, under a summary.
    Details(String, Vec<Self>),
}

impl<C> Section<C> {
    pub fn new(id: &'static str, title: impl Into<String>) -> Self {
        Self { id, title: title.into(), about: String::new(), blocks: Vec::new() }
    }

    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.about = about.into();
        self
    }

    pub fn push(&mut self, block: impl Into<Block<C>>) {
        self.blocks.push(block.into());
    }

    /// Add a paragraph in a subdued style: explanations of what is above or below.
    pub fn note(&mut self, text: impl Into<String>) {
        self.push(Text::new(text).style(Style::Dim));
    }

    pub fn title(&mut self, title: impl Into<String>, about: impl Into<String>) {
        self.blocks.push(Block::Title(title.into(), about.into()));
    }
}

impl<C> From<Table> for Block<C> {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl<C> From<Text> for Block<C> {
    fn from(text: Text) -> Self {
        Self::Text(text)
    }
}

impl<C> From<Facts> for Block<C> {
    fn from(facts: Facts) -> Self {
        Self::Facts(facts)
    }
}

/// How a figure compares with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Better,
    Worse,
    /// Within noise.
    Noise,
    /// Client-bound: no verdict.
    Bound,
    /// Without an interval: no verdict.
    Alone,
    Unknown,
    Failed,
}

impl Tone {
    /// The sign that stands for it without colours.
    pub const fn sign(self) -> char {
        match self {
            Self::Better => '+',
            Self::Worse => '-',
            Self::Noise => '~',
            Self::Bound => 'c',
            Self::Alone => '·',
            Self::Unknown => '?',
            Self::Failed => '!',
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Plain,
    Strong,
    Dim,
    Tone(Tone),
}

/// A paragraph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text {
    pub spans: Vec<Span>,
    pub style: Style,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub text: String,
    pub kind: SpanKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Plain,
    Strong,
    /// What a user types or what stands in a file; terminals do not break it.
    Code,
}

impl Text {
    pub fn new(text: impl Into<String>) -> Self {
        Self::default().and(text)
    }

    pub const fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    pub fn and(self, text: impl Into<String>) -> Self {
        self.span(text, SpanKind::Plain)
    }

    pub fn strong(self, text: impl Into<String>) -> Self {
        self.span(text, SpanKind::Strong)
    }

    pub fn code(self, text: impl Into<String>) -> Self {
        self.span(text, SpanKind::Code)
    }

    fn span(mut self, text: impl Into<String>, kind: SpanKind) -> Self {
        self.spans.push(Span { text: text.into(), kind });
        self
    }

    /// The text without its markup.
    pub fn words(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }
}

/// Labels with text beside them.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    pub rows: Vec<Fact>,
    /// Spaces before the labels on a terminal.
    pub indent: usize,
    /// Spaces after the widest label on a terminal.
    pub gap: usize,
    /// Least width of the labels on a terminal.
    pub least: usize,
    /// Whether neighbours with the same label each show it.
    pub repeats: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    pub label: String,
    pub label_style: Style,
    pub text: String,
    pub style: Style,
}

impl Facts {
    pub fn new(rows: impl IntoIterator<Item = Fact>) -> Self {
        Self { rows: rows.into_iter().collect(), indent: 0, gap: 2, least: 0, repeats: false }
    }

    pub const fn indent(mut self, indent: usize) -> Self {
        self.indent = indent;
        self
    }
}

impl Fact {
    pub fn new(label: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            label_style: Style::Plain,
            text: text.into(),
            style: Style::Plain,
        }
    }

    pub const fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    pub const fn label_style(mut self, style: Style) -> Self {
        self.label_style = style;
        self
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What the table is, for screen readers.
    pub caption: String,
    /// The class on a page.
    pub class: &'static str,
    /// The class of the frame around it on a page.
    pub frame: &'static str,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
}

impl Table {
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), ..Self::default() }
    }

    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }

    pub const fn class(mut self, class: &'static str) -> Self {
        self.class = class;
        self
    }

    pub const fn frame(mut self, frame: &'static str) -> Self {
        self.frame = frame;
        self
    }

    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Add a line over all columns, above the rows that follow.
    pub fn part(&mut self, title: impl Into<String>) {
        self.rows.push(Row { part: Some(title.into()), ..Row::default() });
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub title: String,
    /// An explanation of the title, as a tooltip.
    pub what: &'static str,
    pub kind: Kind,
    /// Longer names are shortened on terminals.
    pub most: usize,
    /// The marker of the candidate that it is about.
    pub mark: Option<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A label that neighbouring rows share, shown once.
    Group,
    /// What a row is: code in Markdown, shortened on a terminal if it does not fit.
    Name,
    Text,
    Number,
}

impl Column {
    pub fn new(kind: Kind, title: impl Into<String>) -> Self {
        Self { title: title.into(), what: "", kind, most: usize::MAX, mark: None }
    }

    pub fn group(title: impl Into<String>) -> Self {
        Self::new(Kind::Group, title)
    }

    pub fn name(title: impl Into<String>) -> Self {
        Self::new(Kind::Name, title)
    }

    pub fn text(title: impl Into<String>) -> Self {
        Self::new(Kind::Text, title)
    }

    pub fn number(title: impl Into<String>) -> Self {
        Self::new(Kind::Number, title)
    }

    pub const fn what(mut self, what: &'static str) -> Self {
        self.what = what;
        self
    }

    pub const fn most(mut self, columns: usize) -> Self {
        self.most = columns;
        self
    }

    pub const fn mark(mut self, mark: Mark) -> Self {
        self.mark = Some(mark);
        self
    }

    pub const fn is_label(&self) -> bool {
        matches!(self.kind, Kind::Group | Kind::Name)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub cells: Vec<Cell>,
    /// Whether it is only there for comparison, as the control.
    pub faint: bool,
    /// A title of the rows that follow, instead of cells.
    pub part: Option<String>,
}

impl Row {
    pub fn new(cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { cells: cells.into_iter().collect(), ..Self::default() }
    }

    pub const fn faint(mut self, faint: bool) -> Self {
        self.faint = faint;
        self
    }
}

/// A cell; everything but its text is optional.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    pub text: String,
    /// The verdict on it, with its word.
    pub verdict: Option<(Tone, &'static str)>,
    /// A colour without a sign.
    pub tone: Option<Tone>,
    pub interval: Option<Interval>,
    /// Remarks: small below the text on a page, left out elsewhere.
    pub notes: Vec<String>,
    /// A tooltip on a page.
    pub title: String,
    /// A fragment of the page.
    pub link: String,
    /// The marker of the candidate that it names.
    pub mark: Option<Mark>,
    /// A class on a page.
    pub class: &'static str,
}

/// The uncertainty of a figure, both ways to write it; each may be empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// `1.034, 1.042`
    pub ends: String,
    /// `±0.4%`, where there is little room.
    pub plus_minus: String,
}

/// The marker of a candidate on a page: colour and shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Baseline,
    /// Its index among the compared candidates.
    Candidate(usize),
    Control,
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A value, or a dash if it is unknown.
    pub fn number(value: Option<impl ToString>) -> Self {
        value.map_or_else(Self::dash, |value| Self::text(value.to_string()))
    }

    /// An unknown value.
    pub fn dash() -> Self {
        Self::text("–")
    }

    pub fn empty() -> Self {
        Self::default()
    }

    pub const fn verdict(mut self, tone: Tone, word: &'static str) -> Self {
        self.verdict = Some((tone, word));
        self
    }

    pub const fn tone(mut self, tone: Tone) -> Self {
        self.tone = Some(tone);
        self
    }

    pub fn interval(mut self, interval: Option<Interval>) -> Self {
        self.interval = interval;
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    pub fn link(mut self, link: impl Into<String>) -> Self {
        self.link = link.into();
        self
    }

    pub const fn mark(mut self, mark: Mark) -> Self {
        self.mark = Some(mark);
        self
    }

    pub const fn class(mut self, class: &'static str) -> Self {
        self.class = class;
        self
    }
}
