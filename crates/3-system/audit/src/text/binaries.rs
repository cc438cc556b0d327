//! Text output for linked files.

use dbdyno_units::grouped;

use super::TextOptions;
use super::layout::{Lines, counted};
use crate::Audit;
use crate::binary::Binary;
use crate::code::{Code, FunctionsFrom};

/// Maximum number of linked files shown.
const MAX_BINARIES: usize = 10;

/// Maximum number of functions with transactions shown.
const FUNCTIONS: usize = 20;

pub(super) fn render(out: &mut Lines, audit: &Audit, options: &TextOptions) {
    let mut binaries: Vec<&Binary> = audit.binaries.iter().collect();
    binaries.sort_by_key(|binary| std::cmp::Reverse(binary.sizes.stripped));
    let shown = options.entries(MAX_BINARIES);
    for binary in binaries.iter().take(shown) {
        out.blank();
        one(out, binary, options);
    }
    if binaries.len() > shown {
        out.blank();
        let more = binaries.len() - shown;
        out.line(&format!("… and {more} smaller linked files (--all shows them)"));
    }
}

fn one(out: &mut Lines, binary: &Binary, options: &TextOptions) {
    out.line(&binary.path.display().to_string());
    let id = binary.build_id.as_deref().unwrap_or("none");
    out.field("kind", &format!("{}, {}, build id {id}", binary.kind, binary.architecture));
    let sizes = &binary.sizes;
    let mut size = vec![format!("{} executable", sizes.executable)];
    if let Some(text) = sizes.text {
        size.insert(0, format!("{text} text"));
    }
    size.extend(sizes.stripped.map(|stripped| format!("{stripped} stripped")));
    size.push(format!("{} in all", sizes.file));
    out.field("size", &size.join(", "));
    out.field("records", &records(binary));
    out.field("protection", &protections(binary));
    if let Some(link) = binary.link_time_code {
        out.field("link", if link { "generated code (lto)" } else { "generated no code" });
    }
    if !binary.comments.is_empty() {
        out.field("comments", &binary.comments.join("; "));
    }
    if let Some(code) = &binary.code {
        machine_code(out, code);
        transactions(out, code, options);
    }
}

fn records(binary: &Binary) -> String {
    let records = &binary.records;
    let mut words = vec![match (&records.debug_file, records.debug) {
        (Some(file), _) => format!("debug information in {}", file.display()),
        (None, true) => "debug information".to_owned(),
        (None, false) => "no debug information".to_owned(),
    }];
    let mut add = |there: bool, what: &str| {
        words.push(if there { what.to_owned() } else { format!("no {what}") });
    };
    add(records.command_lines, "command lines");
    add(records.symbols, "symbols");
    add(records.relocations, "relocations");
    words.join(", ")
}

fn protections(binary: &Binary) -> String {
    let protections = &binary.protections;
    let mut words = vec![format!("relro {}", protections.relro)];
    let mut add = |there: bool, what: &str| {
        words.push(if there { what.to_owned() } else { format!("no {what}") });
    };
    add(protections.stack_protector, "stack protector");
    add(protections.control_flow, "marked jump targets");
    add(protections.assertions, "assertions");
    words.push(match protections.fortified.len() {
        0 => "not fortified".to_owned(),
        count => counted(count, "fortified function"),
    });
    if protections.executable_stack == Some(true) {
        words.push("executable stack".to_owned());
    }
    words.join(", ")
}

fn machine_code(out: &mut Lines, code: &Code) {
    let from = match code.found {
        FunctionsFrom::Symbols => "symbols",
        FunctionsFrom::Unwinding => "unwinding tables",
        FunctionsFrom::Sections => "sections only",
    };
    let frames = match code.frame_pointers() {
        Some(true) => ", frame pointers",
        Some(false) => ", no frame pointers",
        None => "",
    };
    out.field(
        "code",
        &format!(
            "{} functions (from {from}), {} instructions{frames}",
            grouped(code.functions),
            grouped(code.instructions)
        ),
    );
    let extensions: Vec<String> = code
        .extensions
        .iter()
        .map(|(extension, used)| {
            format!("{extension} in {} ({})", grouped(used.functions), code.share(*extension))
        })
        .collect();
    let extensions = match extensions.is_empty() {
        true => "none".to_owned(),
        false => format!("functions with {}", extensions.join(", ")),
    };
    out.field("extensions", &extensions);
}

fn transactions(out: &mut Lines, code: &Code, options: &TextOptions) {
    if code.transactional.is_empty() {
        return;
    }
    let count = counted(code.transactional.len(), "function");
    out.field(
        "xbegin",
        &format!("{count} with hardware transactions; a layout optimizer must leave them whole:"),
    );
    let shown = options.entries(FUNCTIONS);
    for function in code.transactional.iter().take(shown) {
        out.wrapped("      ", &format!("{} ({} bytes)", function.readable(), function.size));
    }
    if code.transactional.len() > shown {
        let more = code.transactional.len() - shown;
        out.line(&format!("      … and {more} more (--all shows them)"));
    }
}
