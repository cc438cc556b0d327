//! docs/experiments.md lists all keys, with the defaults, ranges and words that the parser has.

use std::collections::BTreeSet;

use dbdyno_document::{parse_duration, parse_size};
use dbdyno_spec::experiment::Experiment;
use dbdyno_spec::{parse_with_files, valid_keys};

const PAGE: &str = include_str!("../../../../../docs/experiments.md");

/// A text above each table of keys, the table of the file that has them, and an experiment with one of
/// them instead of `%`; `$` is a candidate.
const TABLES: [(&str, &str, &str); 24] = [
    ("## Top level", "", "%\n$"),
    ("## `[workload]`", "workload", "[workload]\n%\n$"),
    ("## `[insert_benchmark]`", "insert_benchmark", "[insert_benchmark]\n%\n$"),
    ("## `[schedule]`", "schedule", "[schedule]\n%\n$"),
    ("## `[cpus]`", "cpus", "[cpus]\n%\n$"),
    ("## `[checks]`", "checks", "[checks]\n%\n$"),
    ("## `[profile]`", "profile", "[profile]\n%\n$"),
    ("## `[fleet]`", "fleet", "[fleet]\n%\n$"),
    ("## `[sqlite]`", "sqlite", "[sqlite]\n%\n$"),
    ("## `[source]`", "source", "[source]\nbundled = true\n%\n$"),
    ("## `[mariadb]`, `[mysql]`, `[postgresql]`", "mariadb", "[mariadb]\n%\n$"),
    ("## `[host.NAME]`", "host.x", "[host.x]\n%\n$"),
    ("## `[[candidate]]`", "candidate", "$\n%"),
    (
        "### Private servers",
        "candidate",
        "[host.x]\n[[candidate]]\nname = 'a'\nsystem = 'mysql'\nhost = 'x'\n%",
    ),
    (
        "Keys of `live`:",
        "candidate.live",
        "[[candidate]]\nname = 'a'\nsystem = 'mysql'\nlive = { % }",
    ),
    (
        "### Compiled servers",
        "candidate",
        "[[candidate]]\nname = 'a'\nsystem = 'postgresql'\nsource.path = '/s'\nvariant = 'rel'\n%",
    ),
    (
        "### Existing servers",
        "candidate",
        "[[candidate]]\nname = 'a'\nsystem = 'mysql'\nurl = 'mysql://me@h'\n%",
    ),
    ("### SQLite", "candidate", "$\n%"),
    ("### Settings", "candidate", "$\n%"),
    ("### `[variant.NAME]`", "variant.x", "[variant.x]\n%\n$"),
    ("## Profiles", "candidate", "$\npgo = 'instrument'\nbolt = true\ntraining = ['all']\n%"),
    (
        "### Keys",
        "microbenchmark",
        "[[microbenchmark]]\nname = 'm'\n%\nstatements = [{ sql = 'SELECT 1', rows = 1 }]\n$",
    ),
    (
        "| key of a statement",
        "microbenchmark.statements",
        "[[microbenchmark]]\nname = 'm'\n[[microbenchmark.statements]]\nsql = 'SELECT 1'\nrows = 1\n%\n$",
    ),
    (
        "### sysbench scripts",
        "microbenchmark",
        "[workload]\nmicrobenchmarks = ['m']\n[[microbenchmark]]\nname = 'm'\nscript = 'm.lua'\n%\n[[candidate]]\nname = 'a'\nsystem = 'mysql'",
    ),
];

/// Tables in a candidate that have keys of their own.
const INNER: [&str; 9] = [
    "source = { git = '/g', revision = 'v1' }",
    "source = { debian = 'mysql-9.7', suite = 'sid', version = '1' }",
    "source = { tarball = '/t' }",
    "source = { bundled = true }",
    "release = { debian = 'sid' }",
    "release = { tarball = '/t' }",
    "release = { maven = 'g:a:1', type = 'zip' }",
    "release = { npm = 'n@1.0.0' }",
    "matrix = { a = [1, 2] }",
];

/// Defaults that are chosen later, when a machine or a source is known.
const LATER: [&str; 2] = ["fleet.scratch", "candidate.configure_with"];

const SQLITE: &str = "[[candidate]]\nname = 'a'\nsystem = 'sqlite'\nvariant = 'rel'";
const SERVER: &str = "[[candidate]]\nname = 'a'\nsystem = 'mysql'";

fn text(template: &str, candidate: &str, key: &str) -> String {
    let sections = template.replace('%', key).replace('$', candidate);
    format!("name = 'x'\nbaseline = 'a'\n{sections}\n")
}

fn parsed(text: &str) -> Result<Experiment, String> {
    let script = "function prepare() end function event() end".to_owned();
    let files = |_: &str| Ok(script.clone());
    parse_with_files("x.toml", text, &files).map_err(|problems| problems.to_string())
}

/// The words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_key(word: &&str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// A row of a table of keys: where the table is, and the cells, each with its column.
struct Row {
    table: usize,
    cells: Vec<(&'static str, &'static str)>,
}

impl Row {
    fn keys(&self) -> impl Iterator<Item = &'static str> {
        quoted(self.cells[0].1).filter(is_key)
    }

    fn columns(&self, start: &str) -> impl Iterator<Item = &'static str> {
        self.cells
            .iter()
            .filter(move |(column, _)| column.starts_with(start))
            .map(|(_, cell)| *cell)
    }
}

/// All rows; and the keys that sentences and headings name.
fn page() -> (Vec<Row>, BTreeSet<String>) {
    let (mut rows, mut named) = (Vec::new(), BTreeSet::new());
    let (mut table, mut header) = (None, Vec::new());
    for line in PAGE.lines() {
        let cells = line.trim_matches('|').split('|').map(str::trim);
        if let Some(found) = TABLES.iter().position(|(above, ..)| line.starts_with(above)) {
            table = Some(found);
        } else if line.starts_with('#') {
            table = None;
        }
        if line.starts_with('#') {
            let sections = quoted(line).filter(|word| word.starts_with('['));
            let name = |word: &str| word.trim_matches(['[', ']']).replace(".NAME", "");
            named.extend(sections.map(name));
        }
        let Some(table) = table else { continue };
        if line.starts_with("| key") {
            header = cells.collect();
        } else if !line.starts_with('|') {
            header.clear();
            if ["mariadb", "host.x"].contains(&TABLES[table].1) && !line.starts_with('#') {
                named.extend(
                    quoted(line).filter(is_key).map(|key| format!("{}.{key}", TABLES[table].1)),
                );
            }
        } else if !header.is_empty() && !line.starts_with("| ---") {
            rows.push(Row { table, cells: header.iter().copied().zip(cells).collect() });
        }
    }
    (rows, named)
}

#[test]
fn all_keys_are_documented_and_no_others() {
    let (rows, mut documented) = page();
    for row in &rows {
        let (above, path, _) = TABLES[row.table];
        let also = (above == "### Settings").then_some("variant.x");
        for path in [path].into_iter().chain(also) {
            let full =
                |key| if path.is_empty() { String::from(key) } else { format!("{path}.{key}") };
            documented.extend(row.keys().map(full));
        }
    }
    let inner = INNER.map(|line| format!("{SERVER}\nvariant = 'rel'\n{line}"));
    let templates =
        TABLES.iter().map(|(.., template)| *template).chain(inner.iter().map(String::as_str));
    let mut valid = BTreeSet::new();
    for template in templates {
        valid.extend(valid_keys(&text(template, SQLITE, "")).into_iter().map(|path| {
            // One table of each kind is documented.
            let path = path.replace("mysql.", "mariadb.").replace("postgresql.", "mariadb.");
            let path =
                path.replace("candidate.source.", "source.").replace("mariadb.source.", "source.");
            path.replace("candidate.sqlite.", "sqlite.")
        }));
    }
    let unknown: Vec<_> = documented.difference(&valid).collect();
    assert!(unknown.is_empty(), "documented, but not valid: {unknown:?}");
    // Keys of small tables are documented by examples.
    let by_example = |path: &&String| {
        let (table, key) = path.rsplit_once('.').unwrap_or_default();
        let is_small = ["source", "candidate.release", "insert_benchmark.rows"];
        is_small.iter().any(|small| table.starts_with(small))
            && (PAGE.contains(&format!("{key} = ")) || PAGE.contains(&format!("`{key}` selects")))
    };
    let undocumented: Vec<_> =
        valid.difference(&documented).filter(|path| !by_example(path)).collect();
    assert!(undocumented.is_empty(), "valid, but not documented: {undocumented:?}");
}

#[test]
fn documented_defaults_change_nothing() {
    let mut checked = 0;
    for row in page().0 {
        let (_, path, template) = TABLES[row.table];
        for (default, candidate) in row.columns("default").zip([SQLITE, SERVER]) {
            let (Some(key), Some(value)) = (row.keys().next(), quoted(default).next()) else {
                continue;
            };
            let rest = default.trim_start_matches(&format!("`{value}`"));
            if !(rest.is_empty() || rest.starts_with("; ") || rest.starts_with(" with "))
                || LATER.contains(&format!("{path}.{key}").as_str())
            {
                continue;
            }
            let without = parsed(&text(template, candidate, "")).unwrap();
            let explicit = parsed(&text(template, candidate, &format!("{key} = {value}"))).unwrap();
            assert_eq!(explicit, without, "{path}.{key} = {value}");
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked}");
}

/// The end of a documented range as TOML, and the value that is just outside of it.
fn bound(end: &str, kind: &str, outwards: i64) -> Option<(String, String)> {
    // Quantities are parsed as floating-point numbers.
    let step = |value: i64| if kind.starts_with("integer") { 1 } else { (value >> 40).max(1) };
    let with_outside = |value: i64, unit: &str| {
        let outside = value.checked_add(outwards * step(value))?;
        Some((format!("{value}{unit}"), format!("{outside}{unit}")))
    };
    if kind.starts_with("integer") {
        let value = match end.split_once('^') {
            Some((base, exponent)) => {
                base.parse::<i64>().ok()?.checked_pow(exponent.parse().ok()?)?
            }
            None => end.replace(',', "").parse().ok()?,
        };
        with_outside(value, "")
    } else if kind.starts_with("duration") {
        let end = match end.strip_suffix(" days") {
            Some(days) => format!("{}h", days.parse::<u64>().ok()? * 24),
            None => end.to_owned(),
        };
        let (value, outside) = with_outside(parse_duration(&end).unwrap().as_nanos() as i64, "ns")?;
        Some((format!("'{value}'"), format!("'{outside}'")))
    } else if kind.starts_with("size") {
        with_outside(parse_size(end).unwrap().as_bytes() as i64, "")
    } else {
        let value: f64 = end.strip_suffix('%')?.parse().ok()?;
        let outside = value * (1.0 + outwards as f64 / 100.0);
        (value > 0.0).then(|| (format!("'{value}%'"), format!("'{outside}%'")))
    }
}

#[test]
fn documented_ranges_and_words_are_those_that_are_accepted() {
    let (mut ranges, mut choices) = (0, 0);
    for row in page().0 {
        let template = TABLES[row.table].2;
        let (Some(key), Some(kind)) = (row.keys().next(), row.columns("type").next()) else {
            continue;
        };
        let problems = |value: &str| {
            parsed(&text(template, SQLITE, &format!("{key} = {value}"))).err().unwrap_or_default()
        };
        if let Some((low, high)) = kind.split_once(" to ").filter(|_| !kind.starts_with("table")) {
            let low = low.rsplit([',']).next().unwrap().rsplit("from ").next().unwrap().trim();
            let high = high.split(", ").next().unwrap();
            for (value, outside) in
                [bound(low, kind, -1), bound(high, kind, 1)].into_iter().flatten()
            {
                let out_of_range = format!("`{key}` is out of range");
                assert!(!problems(&value).contains(&out_of_range), "{key} = {value}");
                assert!(problems(&outside).contains(&out_of_range), "{key} = {outside}");
                ranges += 1;
            }
        }
        let is_set = text(template, SQLITE, "").contains(&format!("\n{key} = "));
        if kind.starts_with("`\"") && !is_set {
            let help = problems("'xyzzy'");
            let (_, valid) =
                help.split_once("valid are ").unwrap_or_else(|| panic!("{key}: {help}"));
            let documented: BTreeSet<&str> =
                quoted(kind).map(|word| word.trim_matches('"')).collect();
            assert_eq!(documented, quoted(valid.lines().next().unwrap()).collect(), "{key}");
            choices += 1;
        }
    }
    assert!(ranges > 50 && choices > 15, "{ranges} {choices}");
}
