//! `configuration = { … }`: a server's own settings, under the server's names.

use dbdyno_document::{Problem, Setting, Spanned, Table};
use dbdyno_types::server::{Protocol, ServerSystem};

/// Reads a table on top of the default settings. Settings keep their order; an override keeps the
/// position of the setting that it replaces.
pub fn read(
    table: Option<Table<'_>>,
    system: ServerSystem,
    mut settings: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let Some(mut table) = table else { return settings };
    let mut seen: Vec<Spanned<String>> = Vec::new();
    for (name, value) in table.named_settings() {
        let canonical = canonical(name.value, system);
        if !is_name(name.value) {
            report_name(&table, name);
            continue;
        }
        if let Some(first) = seen.iter().find(|first| first.value == canonical) {
            let line = table.document().line_of(first.span);
            let message = format!("`{}` is set twice", name.value);
            let help = format!("same setting as in line {line}");
            table.report(Problem::new(name.span, message).help(help));
        }
        let Some(value) = text(value, system, &table) else { continue };
        match settings.iter_mut().find(|(name, _)| *name == canonical) {
            Some((_, old)) => *old = value,
            None => settings.push((canonical.clone(), value)),
        }
        seen.push(name.map(|_| canonical));
    }
    settings
}

/// The values of a setting.
pub type ValueList = Spanned<Vec<Spanned<String>>>;

/// Reads lists of values: the canonical name of each setting with its values, in the syntax of the
/// server's configuration file. Values with problems are left out.
pub fn read_lists<'d>(
    table: &mut Table<'d>,
    system: ServerSystem,
) -> Vec<(Spanned<String>, ValueList)> {
    let mut settings = Vec::new();
    for (name, values) in table.named_setting_lists() {
        if !is_name(name.value) {
            report_name(table, name);
            continue;
        }
        let texts = values.value.iter().filter_map(|value| {
            let text = text(*value, system, table)?;
            Some(value.map(|_| text))
        });
        let texts = Spanned { value: texts.collect(), span: values.span };
        settings.push((name.map(|name| canonical(name, system)), texts));
    }
    settings
}

fn report_name(table: &Table<'_>, name: Spanned<&str>) {
    let message = format!("`{}` cannot be the name of a setting", name.value);
    let help = "names consist of letters, digits and _ - .";
    table.report(Problem::new(name.span, message).help(help));
}

/// The canonical spelling of a name with several spellings.
pub fn canonical(name: &str, system: ServerSystem) -> String {
    match system.facts().protocol {
        Protocol::MySql => name.replace('-', "_"),
        Protocol::PostgreSql => name.to_ascii_lowercase(),
    }
}

/// Other characters are special in the configuration file of some server.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// The value in the syntax of the server's configuration file.
fn text(value: Spanned<Setting<'_>>, system: ServerSystem, table: &Table<'_>) -> Option<String> {
    let problem = |message: &str, help: &str| {
        table.report(Problem::new(value.span, message).help(help));
        None
    };
    match value.value {
        Setting::String(text) if text.contains(char::is_control) => {
            problem("a setting must be one line of plain text", "remove line breaks and tabs")
        }
        Setting::String(text) => Some(text.to_owned()),
        Setting::Integer(number) => Some(number.to_string()),
        Setting::Float(number) if number.is_finite() => Some(number.to_string()),
        Setting::Float(_) => problem("a setting must be a finite number", "write it as a string"),
        Setting::Boolean(on) => Some(system.facts().booleans[usize::from(on)].to_owned()),
    }
}
