//! `matrix` of a `[[candidate]]`: a candidate for each combination of values of a server's settings.

use dbdyno_document::{Document, Problem, Span, Spanned, Table};
use dbdyno_types::{MatrixCell, MatrixLevel};

use crate::candidate::{CandidateSection, Program};
use crate::configuration;
use crate::experiment::{Candidate, System};
use crate::names;

/// Maximum number of candidates of a matrix: each is a server with its own data.
const MOST: usize = 16;

/// Prefixes of settings that are left out of candidates' names.
const PREFIXES: [&str; 2] = ["innodb_", "rocksdb_"];

/// A valid matrix.
pub struct Matrix {
    span: Span,
    settings: Vec<(Spanned<String>, Vec<String>)>,
}

/// Reads `matrix`; `None` if there is none or it has problems.
pub fn read(table: &mut Table<'_>, program: Option<Program>) -> Option<Matrix> {
    let span = table.key_span("matrix")?;
    let system = match program? {
        Program::Server(system) if !table.has("url") => system,
        Program::Server(_) => {
            let help = "dbdyno does not configure a server with a `url`";
            table.refuse("matrix", "is for a server that dbdyno starts", help);
            return None;
        }
        Program::Sqlite => {
            let help = "write a [[candidate]] with `sqlite = { … }` for each combination";
            table.refuse("matrix", "is for servers", help);
            return None;
        }
    };
    let mut matrix = table.table("matrix")?;
    let problems_before = matrix.document().problem_count();
    let mut settings: Vec<(Spanned<String>, Vec<String>)> = Vec::new();
    for (name, values) in configuration::read_lists(&mut matrix, system) {
        if settings.iter().any(|(other, _)| other.value == name.value) {
            report(&matrix, name.span, format!("`{}` is set twice", name.value), "remove one");
        }
        if values.value.len() < 2 {
            let help = "write a setting with one value in `configuration`";
            report(&matrix, values.span, format!("`{}` needs two values", name.value), help);
        }
        for (index, value) in values.value.iter().enumerate() {
            if values.value[..index].iter().any(|other| part(&other.value) == part(&value.value)) {
                let message = format!("`{}` twice", value.value);
                let help = "each value gives candidates with a name of their own";
                report(&matrix, value.span, message, help);
            }
        }
        settings.push((name, values.value.into_iter().map(|value| value.value).collect()));
    }
    let count = settings.iter().fold(1_usize, |all, (_, values)| all.saturating_mul(values.len()));
    if count > MOST {
        let help = format!("at most {MOST}: each has a server and a copy of the data");
        report(&matrix, span, format!("`matrix` has {count} combinations"), &help);
    }
    if settings.is_empty() && matrix.document().problem_count() == problems_before {
        let help = "as in { innodb_flush_neighbors = [0, 1] }";
        report(&matrix, span, "`matrix` is empty".to_owned(), help);
    }
    let is_valid = matrix.document().problem_count() == problems_before;
    is_valid.then_some(Matrix { span, settings })
}

fn report(table: &Table<'_>, span: Span, message: String, help: &str) {
    table.report(Problem::new(span, message).help(help));
}

impl Matrix {
    /// The candidates: `one` with each combination of values. The last setting changes first.
    pub fn candidates(&self, one: &Candidate, document: &Document) -> Vec<Candidate> {
        let System::Private(server) = &one.system else { return vec![one.clone()] };
        for (name, _) in &self.settings {
            if server.configuration.iter().any(|(set, _)| *set == name.value) {
                let message = format!("`{}` is also in `configuration`", name.value);
                document
                    .report(Problem::new(name.span, message).help("remove it from one of them"));
            }
        }
        let mut cells: Vec<Vec<MatrixLevel>> = vec![Vec::new()];
        for (setting, values) in &self.settings {
            let level = |value: &String| MatrixLevel {
                setting: setting.value.clone(),
                value: value.clone(),
            };
            cells = cells
                .iter()
                .flat_map(|cell| {
                    values.iter().map(move |value| [&cell[..], &[level(value)]].concat())
                })
                .collect();
        }
        let candidates = cells.into_iter().map(|levels| {
            let mut server = server.clone();
            let settings = levels.iter().map(|one| (one.setting.clone(), one.value.clone()));
            server.configuration.extend(settings);
            Candidate {
                name: self.name(&one.name, &levels),
                system: System::Private(server),
                matrix: Some(MatrixCell { matrix: one.name.clone(), levels }),
                ..one.clone()
            }
        });
        let candidates: Vec<Candidate> = candidates.collect();
        if let Some(long) = candidates.iter().find(|one| one.name.len() > names::LONGEST) {
            let message = format!("the name {} is too long", long.name);
            let help = format!("at most {} characters: shorten `name`", names::LONGEST);
            document.report(Problem::new(self.span, message).help(help));
        }
        candidates
    }

    /// The name of a combination, such as `maria.doublewrite-ON.flush_neighbors-0`.
    fn name(&self, of: &str, levels: &[MatrixLevel]) -> String {
        let all: Vec<&str> = self.settings.iter().map(|(name, _)| short(&name.value)).collect();
        let mut name = of.to_owned();
        for MatrixLevel { setting, value } in levels {
            let short = short(setting);
            let is_unique = all.iter().filter(|other| **other == short).count() == 1;
            let setting = if is_unique { short } else { setting };
            name.push_str(&format!(".{}-{}", part(setting), part(value)));
        }
        name
    }
}

/// The name of a setting in candidates' names.
pub fn short(setting: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| setting.strip_prefix(prefix)).unwrap_or(setting)
}

/// A text as a part of a candidate's name.
pub fn part(text: &str) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    text.chars().map(|c| if valid(c) { c } else { '_' }).collect()
}

/// Reports a candidate of a matrix with the name of another candidate.
pub fn check_names(root: &Table<'_>, candidates: &[CandidateSection<'_>]) {
    let mut taken: Vec<&Candidate> = Vec::new();
    for one in candidates.iter().flat_map(CandidateSection::all) {
        let is_equal = |other: &&Candidate| {
            other.name == one.name && (other.matrix.is_some() || one.matrix.is_some())
        };
        if taken.iter().any(is_equal) {
            let message = format!("duplicate candidate name `{}`, of a `matrix`", one.name);
            let span = root.key_span("candidate").unwrap_or_default();
            root.report(Problem::new(span, message).help("rename one of the candidates"));
        }
        taken.push(one);
    }
}

/// The name of the baseline: of a matrix, the candidate with the first value of each setting.
pub fn baseline(name: &str, candidates: &[CandidateSection<'_>]) -> String {
    let of_matrix = candidates.iter().find(|candidate| candidate.name == Some(name));
    let first = of_matrix.and_then(|candidate| candidate.complete.as_ref());
    first.map_or(name, |first| first.name.as_str()).to_owned()
}
