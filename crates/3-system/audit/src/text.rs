//! Text output of audits and differences.

mod against;
mod binaries;
mod findings;
mod layout;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use crate::Audit;
use crate::expected::Expected;
use crate::finding::Severity;
use crate::record::Evidence;
pub use against::render_difference;
use layout::{Lines, counted};

/// Output options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Characters per line, at least 60.
    pub width: usize,
    /// Whether lists are complete instead of shortened.
    pub all: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { width: 80, all: false }
    }
}

impl TextOptions {
    /// The number of list entries to show.
    const fn entries(&self, few: usize) -> usize {
        if self.all { usize::MAX } else { few }
    }
}

/// Renders an audit, ending with a line feed.
#[must_use]
pub fn render(audit: &Audit, options: &TextOptions) -> String {
    let mut out = Lines::new(options.width.max(60));
    header(&mut out, audit);
    table::render(&mut out, audit, options);
    findings::render(&mut out, audit, options);
    binaries::render(&mut out, audit, options);
    verdict(&mut out, audit);
    out.into_text()
}

fn header(out: &mut Lines, audit: &Audit) {
    out.line(&format!("Flag audit of {}", audit.root.display()));
    let checked = audit.objects.iter().filter(|object| object.is_checked()).count();
    let recorded = audit.objects.iter().filter(|o| o.is_checked() && o.flags.is_some()).count();
    let used: BTreeSet<usize> = audit.objects.iter().filter_map(|object| object.flags).collect();
    out.field(
        "objects",
        &match recorded {
            0 => format!("{}, no recorded command line", counted(checked, "object")),
            _ => format!(
                "{}, {recorded} with a recorded command line, {}",
                counted(checked, "object"),
                counted(used.len(), "different one")
            ),
        },
    );
    let mut compilers: BTreeMap<String, usize> = BTreeMap::new();
    for object in &audit.objects {
        if let Some(compiler) = &object.effective.compiler {
            *compilers.entry(compiler.to_string()).or_default() += 1;
        }
    }
    let names = compilers.iter().map(|(name, count)| format!("{name} ({count})"));
    out.field("compilers", &or_none(names.collect()));
    let mut evidence: BTreeMap<Evidence, usize> = BTreeMap::new();
    for kind in audit.objects.iter().flat_map(|object| &object.evidence) {
        *evidence.entry(*kind).or_default() += 1;
    }
    let kinds = evidence.iter().map(|(kind, count)| format!("{kind} ({count})"));
    out.field("read from", &or_none(kinds.collect()));
    if let Some(commands) = audit.compile_commands {
        let matched = audit.objects.iter().filter(|object| object.requested.is_some()).count();
        out.field("database", &format!("{commands} commands, for {matched} of these objects"));
    }
    out.field("expected", &expected(&audit.expected));
    for unreadable in &audit.unreadable {
        let text = format!("{}: {}", unreadable.path.display(), unreadable.reason);
        out.field("unreadable", &text);
    }
}

fn or_none(words: Vec<String>) -> String {
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// A one-line description of the expectations.
fn expected(expected: &Expected) -> String {
    let mut words: Vec<String> = expected.name.iter().map(|name| format!("{name}:")).collect();
    let mut add = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name} {value},")));
    };
    let on_off = |on: Option<bool>| on.map(|on| if on { "on" } else { "off" }.to_owned());
    add("compiler", expected.compiler.map(|family| family.to_string()));
    add("optimization", expected.optimization.map(|level| format!("-{level}")));
    add("lto", expected.lto.map(|lto| lto.to_string()));
    add("march", expected.march.as_ref().map(ToString::to_string));
    add("debug", on_off(expected.debug));
    add("frame pointers", on_off(expected.frame_pointers));
    add("stack protector", expected.stack_protector.map(|protector| protector.to_string()));
    add("fortify", expected.fortify.map(|fortify| fortify.to_string()));
    add("stack clash", on_off(expected.stack_clash));
    add("control flow", on_off(expected.control_flow));
    add("assertions", on_off(expected.assertions));
    add("profile", expected.profile.map(|profile| profile.to_string()));
    for check in &expected.ignored {
        words.push(format!("ignoring {check},"));
    }
    match words.is_empty() {
        true => "nothing specified; only inconsistencies are shown".to_owned(),
        false => words.join(" ").trim_end_matches([',', ':']).to_owned(),
    }
}

fn verdict(out: &mut Lines, audit: &Audit) {
    let count = |severity| audit.findings.iter().filter(|f| f.severity == severity).count();
    let (violations, warnings) = (count(Severity::Violation), count(Severity::Warning));
    out.blank();
    let name = audit.expected.name.as_deref().unwrap_or("what was expected");
    out.wrapped(
        "",
        &match (violations, warnings, audit.expected == Expected::default()) {
            (0, 0, true) => "No inconsistencies found.".to_owned(),
            (0, 0, false) => format!("It is {name}, as far as recorded."),
            (0, warnings, _) => format!("{}, no violation.", counted(warnings, "warning")),
            (violations, warnings, _) => format!(
                "It is not {name}: {}, {}.",
                counted(violations, "violation"),
                counted(warnings, "warning")
            ),
        },
    );
}
