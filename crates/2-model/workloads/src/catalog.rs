//! All microbenchmarks that can be selected, in running order.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use dbdyno_document::{Document, Problem, Problems, Spanned, Table, did_you_mean, nearest};

use crate::decode::{Decoded, NO_FILES, ReadFile, decode};
use crate::definition::{Group, Microbenchmark, PUBLISHED_GROUPS, Stage};

/// The definitions of the built-in microbenchmarks; also examples for user-defined ones.
pub const BUILTIN: &str = include_str!("builtin.toml");

/// The word that selects the published and the user-defined microbenchmarks.
const ALL: &str = "all";

/// The word that selects the read-only tests of older sysbench versions.
const OLTP_READS: &str = "oltp-reads";

/// All microbenchmarks that can be selected, in running order.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    entries: Vec<Entry>,
}

/// One microbenchmark of a catalog.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub microbenchmark: Microbenchmark,
    pub origin: Origin,
    /// The word that selects its set; `None` if it is part of `all`, or of no set.
    pub set: Option<&'static str>,
    /// The name of the same work in sysbench, which also selects it.
    pub sysbench_name: Option<String>,
}

/// The origin of a microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// One of the published 42.
    Published,
    /// Built in, but not one of the 42: neither `all` nor a group selects it.
    Extra,
    /// Defined in the user's experiment.
    Own,
}

/// A word of a selection that selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Unmatched {
    /// The word's position in the selection, from 0.
    pub index: usize,
    pub word: String,
    /// The most similar valid word.
    pub nearest: Option<String>,
}

impl Unmatched {
    /// Advice for the user.
    pub fn help(&self) -> String {
        match &self.nearest {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!(
                "select by name, by pattern (`point-*`), by group (`point-1`), `{ALL}` or \
                 `{OLTP_READS}`"
            ),
        }
    }
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no microbenchmark is called `{}`", self.word)
    }
}

impl Catalog {
    /// The built-in microbenchmarks.
    ///
    /// # Panics
    /// Never: the text is part of the program, and tests read it.
    pub fn builtin() -> Self {
        Self::parse_builtin(BUILTIN).unwrap_or_else(|problems| {
            panic!("the built-in microbenchmarks are wrong:\n{problems}")
        })
    }

    /// Adds the microbenchmarks of one user-defined `[[microbenchmark]]` table, with scripts from `files`, each at the
    /// end of its stage. Problems are reported to the table's document.
    pub fn add(&mut self, table: Table<'_>, files: ReadFile<'_>) {
        let document = table.document();
        let Some(Decoded { name, microbenchmarks }) = decode(table, files) else {
            return;
        };
        if let Err(problem) = self.check_new(&name, &microbenchmarks) {
            document.report(problem);
            return;
        }
        for entry in &mut self.entries {
            // The user's own microbenchmark has precedence.
            entry.sysbench_name.take_if(|sysbench| *sysbench == name.value);
        }
        for microbenchmark in microbenchmarks {
            let later = |entry: &Entry| entry.microbenchmark.stage > microbenchmark.stage;
            let place = self.entries.iter().position(later).unwrap_or(self.entries.len());
            let entry =
                Entry { microbenchmark, origin: Origin::Own, set: None, sysbench_name: None };
            self.entries.insert(place, entry);
        }
    }

    /// All entries, in running order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The microbenchmark with this full name.
    pub fn get(&self, name: &str) -> Option<&Microbenchmark> {
        let found = self.entries.iter().find(|entry| entry.microbenchmark.name == name);
        found.map(|entry| &entry.microbenchmark)
    }

    /// Selects microbenchmarks by words; the result is in running order, without duplicates. A word
    /// is a full name or its name in sysbench, a pattern with `*` and `?`, a group, one of the older
    /// three groups, a set, or `all`. A full name selects one microbenchmark even if a group has the
    /// same name.
    pub fn select<'w>(
        &self,
        words: impl IntoIterator<Item = &'w str>,
    ) -> Result<Vec<Microbenchmark>, Vec<Unmatched>> {
        let mut selected = vec![false; self.entries.len()];
        let mut unmatched = Vec::new();
        for (index, word) in words.into_iter().enumerate() {
            let exact = self.get(word).is_some();
            let is_meant = |entry: &Entry| match exact {
                true => entry.microbenchmark.name == word,
                false => entry.matches(word),
            };
            for (entry, selected) in self.entries.iter().zip(&mut selected) {
                *selected |= is_meant(entry);
            }
            if !self.entries.iter().any(is_meant) {
                let (word, nearest) = (word.to_owned(), self.nearest(word));
                unmatched.push(Unmatched { index, word, nearest });
            }
        }
        if !unmatched.is_empty() {
            return Err(unmatched);
        }
        let chosen = self.entries.iter().zip(selected).filter(|(_, selected)| *selected);
        Ok(chosen.map(|(entry, _)| entry.microbenchmark.clone()).collect())
    }

    /// The valid word most similar to `word`.
    fn nearest(&self, word: &str) -> Option<String> {
        let all = || self.entries.iter();
        let sysbench = all().filter_map(|entry| entry.sysbench_name.as_deref());
        let names = all().map(|entry| entry.microbenchmark.name.as_str());
        let names: Vec<&str> = names.chain(sysbench).collect();
        if !word.is_empty() && names.iter().any(|name| name.starts_with(word)) {
            return Some(format!("{word}*"));
        }
        let mut valid = names.clone();
        for word in selecting_words() {
            valid.push(word);
        }
        valid.extend(all().map(|entry| entry.microbenchmark.group.name()));
        // Also match names without stage and range, and misspelled starts of patterns.
        let start = word.trim_end_matches('*');
        let bases = names.into_iter().map(base);
        let near_base = || nearest(start, bases).map(|base| format!("{base}*"));
        nearest(word, valid).map(str::to_owned).or_else(near_base)
    }

    fn check_new(&self, name: &Spanned<String>, new: &[Microbenchmark]) -> Result<(), Problem> {
        let refuse = |message: String, help: &str| Err(Problem::new(name.span, message).help(help));
        if selecting_words().any(|word| word == name.value) {
            let message = format!("`{}` cannot be the name of a microbenchmark", name.value);
            return refuse(message, "it is a word that selects several");
        }
        for entry in &self.entries {
            let taken = &entry.microbenchmark.name;
            let same = new.iter().any(|new| new.name == *taken);
            match entry.origin {
                Origin::Own if same => {
                    return refuse(format!("`{taken}` is defined twice"), "choose another name");
                }
                // Also if only the range differs: `scan_range=200` could be mistaken for the
                // published scan.
                Origin::Published | Origin::Extra if same || base(taken) == base(&name.value) => {
                    let message = format!("`{}` is a built-in microbenchmark", name.value);
                    return refuse(message, "choose another name");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn parse_builtin(text: &str) -> Result<Self, Problems> {
        let document = Document::parse("builtin.toml", text)?;
        let mut root = document.root();
        let order = read_order(&mut root);
        let mut defined: HashMap<String, Decoded> = HashMap::new();
        for table in root.tables("microbenchmark") {
            if let Some(decoded) = decode(table, NO_FILES) {
                defined.insert(decoded.name.value.clone(), decoded);
            }
        }
        root.require("sysbench");
        let sysbench_names = root.table("sysbench").map(|mut table| table.named_strings());
        let sysbench_names = sysbench_names.unwrap_or_default();
        root.finish();

        let mut entries = Vec::new();
        for Placed { name, stage, origin, set } in order {
            let Some(decoded) = defined.get(name.value) else {
                let names: Vec<&str> = defined.keys().map(String::as_str).collect();
                let message = format!("`{}` is not defined", name.value);
                document.problem(name.span, message, did_you_mean(name.value, &names));
                continue;
            };
            let in_stage = decoded.microbenchmarks.iter().filter(|one| one.stage == stage);
            entries.extend(in_stage.map(|one| Entry {
                microbenchmark: one.clone(),
                origin,
                set,
                sysbench_name: None,
            }));
        }
        for (sysbench, name) in sysbench_names {
            match entries.iter_mut().find(|entry| entry.microbenchmark.name == name.value) {
                Some(entry) => entry.sysbench_name = Some(sysbench.value.to_owned()),
                None => root_problem(&document, format!("[sysbench] `{}` is unknown", name.value)),
            }
        }
        let expected: usize = defined.values().map(|decoded| decoded.microbenchmarks.len()).sum();
        if entries.len() != expected {
            let message = format!("[order] has {} microbenchmarks of {expected}", entries.len());
            root_problem(&document, message);
        }
        document.finish().map(|()| Self { entries })
    }
}

impl Entry {
    fn matches(&self, word: &str) -> bool {
        let group = &self.microbenchmark.group;
        if word == ALL || word == group.name() || word == group.coarse_name() {
            return self.origin != Origin::Extra;
        }
        if self.set == Some(word) {
            return true;
        }
        glob_matches(word, &self.microbenchmark.name)
            || self.sysbench_name.as_ref().is_some_and(|sysbench| glob_matches(word, sysbench))
    }
}

/// A position in the running order.
struct Placed<'d> {
    name: Spanned<&'d str>,
    stage: Stage,
    origin: Origin,
    set: Option<&'static str>,
}

fn read_order<'d>(root: &mut Table<'d>) -> Vec<Placed<'d>> {
    let mut order = Vec::new();
    root.require("order");
    let Some(mut table) = root.table("order") else { return order };
    for (key, stage, origin, set) in [
        ("pre", Stage::Pre, Origin::Published, None),
        ("write", Stage::Write, Origin::Published, None),
        ("post", Stage::Post, Origin::Published, None),
        ("extra", Stage::Post, Origin::Extra, None),
        (OLTP_READS, Stage::Post, Origin::Extra, Some(OLTP_READS)),
        ("last", Stage::Last, Origin::Published, None),
    ] {
        table.require(key);
        let names = table.strings(key).map_or_else(Vec::new, |names| names.value);
        order.extend(names.into_iter().map(|name| Placed { name, stage, origin, set }));
    }
    table.finish();
    order
}

fn root_problem(document: &Document, message: String) {
    document.report(Problem::new(document.root().span(), message));
}

/// The words that select several microbenchmarks: published groups, sets and `all`.
pub(crate) fn selecting_words() -> impl Iterator<Item = &'static str> {
    let groups = PUBLISHED_GROUPS.iter().map(Group::name);
    let groups = groups.chain(PUBLISHED_GROUPS.iter().map(Group::coarse_name));
    groups.chain([ALL, OLTP_READS])
}

/// The names of the published microbenchmarks of a group, one of five or of the older three; none of
/// other groups.
pub fn published(group: &str) -> impl Iterator<Item = &'static str> {
    static PUBLISHED: LazyLock<Vec<(String, Group)>> = LazyLock::new(|| {
        let entries = Catalog::builtin().entries.into_iter();
        let published = entries.filter(|entry| entry.origin == Origin::Published);
        published.map(|entry| (entry.microbenchmark.name, entry.microbenchmark.group)).collect()
    });
    let members =
        PUBLISHED.iter().filter(move |(_, own)| own.name() == group || own.coarse_name() == group);
    members.map(|(name, _)| name.as_str())
}

/// A published name without its stage and range.
fn base(name: &str) -> &str {
    let name = name.split_once("_range=").map_or(name, |(base, _)| base);
    name.strip_suffix(".pre").unwrap_or(name)
}

/// Whether a pattern with `*` (any text) and `?` (any one character) matches the whole name.
///
/// Backtracking to the last star only is sufficient, and fast for patterns with many stars.
fn glob_matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // The position after the last star, and where in the name it was last tried.
    let mut retry = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                p += 1;
                retry = Some((p, n));
            }
            Some(&wanted) if wanted == '?' || wanted == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((after_star, tried)) = retry else { return false };
                (p, n) = (after_star, tried + 1);
                retry = Some((p, n));
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests;
