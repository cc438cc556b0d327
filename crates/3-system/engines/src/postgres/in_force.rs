//! The settings in force in PostgreSQL.

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection, Error};

use super::quoted_text;
use super::session::{FIRST_WITH_JIT, major_version};
use crate::in_force::{
    self, ReportedSetting, SettingInForce, SettingKind, SettingNumber, parse_number,
};

type All = Vec<(String, SettingInForce)>;

/// The settings with these names.
///
/// PostgreSQL does not start with a name or a value that it does not know, except for a name with a dot: that may be
/// a setting of a library that nothing has loaded.
pub(super) fn settings(
    connection: &mut PostgresConnection,
    names: &[String],
) -> Result<Vec<ReportedSetting>, Error> {
    let mut all = read(connection)?;
    let is_unknown = |name: &&String| name.contains('.') && find(name, &all).is_none();
    let mut libraries: Vec<&str> =
        names.iter().filter(is_unknown).filter_map(|name| Some(name.split_once('.')?.0)).collect();
    libraries.dedup();
    if !libraries.is_empty() {
        for library in libraries {
            let library = quoted_text(library);
            let sql = format!("SELECT 1 FROM pg_available_extensions WHERE name = {library}");
            // The library of an extension is loaded by its first function.
            if !connection.query(&sql)?.is_empty() {
                let _ = connection.run(&format!("LOAD {library}"));
            }
        }
        all = read(connection)?;
    }
    Ok(in_force::of_names(names, &all, |name| find(name, &all)))
}

fn find(name: &str, all: &All) -> Option<SettingInForce> {
    let found = all.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, setting)| setting.clone())
}

fn read(connection: &mut PostgresConnection) -> Result<All, Error> {
    // `jit` may be on although the library for it is not installed.
    let has_jit = if major_version(connection.server_version()) < FIRST_WITH_JIT {
        "false"
    } else {
        "pg_jit_available()"
    };
    let sql = format!(
        "SELECT name, CASE WHEN name = 'jit' AND setting = 'on' AND NOT {has_jit} \
         THEN 'off' ELSE current_setting(name) END, setting, unit, vartype, \
         source = 'default', min_val, max_val, boot_val FROM pg_settings"
    );
    let rows = connection.query(&sql)?;
    Ok(rows.iter().filter_map(|row| setting(row)).collect())
}

fn setting(row: &[Option<String>]) -> Option<(String, SettingInForce)> {
    let (default, row) = row.split_last()?;
    let [Some(name), Some(value), Some(setting), unit, Some(kind), is_default, least, most] = row
    else {
        return None;
    };
    let kind = match kind.as_str() {
        "bool" => SettingKind::Switch,
        // It knows more words than it shows, such as `true` for some.
        "enum" => SettingKind::Word(Vec::new()),
        "integer" | "real" => {
            let unit = unit.as_deref().map_or(1.0, unit_value);
            let number = |text: &String| Some(text.parse::<f64>().ok()? * unit);
            let range = least.as_ref().and_then(number).zip(most.as_ref().and_then(number));
            // A range in the units of its numbers only.
            let range = range.filter(|_| unit == 1.0);
            match number(setting) {
                Some(value) => SettingKind::Number(SettingNumber { value, unit, range }),
                None => SettingKind::Text,
            }
        }
        _ => SettingKind::Text,
    };
    let is_default = is_default.as_deref() == Some("t");
    let default = default.clone();
    Some((name.clone(), SettingInForce { value: value.clone(), kind, is_default, default }))
}

/// A unit such as `8kB` or `ms`.
fn unit_value(unit: &str) -> f64 {
    let number = if unit.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "1" };
    parse_number(&format!("{number}{unit}"), 1.0).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use crate::in_force::Effect;

    use super::*;

    #[test]
    fn settings_are_compared_in_their_units() {
        let read = |row: [&str; 8], default: &str| {
            let row = row.map(|text| (!text.is_empty()).then(|| text.to_owned()));
            setting(&[&row[..], &[Some(default.to_owned())]].concat()).unwrap().1
        };
        let effect = |row: [&str; 8], asked: &str| read(row, "1").effect(asked);
        let buffers = ["shared_buffers", "8MB", "1024", "8kB", "integer", "f", "16", "1073741823"];
        for asked in ["8MB", "8192kB", "1024", "0.0078125GB"] {
            assert_eq!(effect(buffers, asked), Effect::AsAsked, "{asked}");
        }
        assert_eq!(effect(buffers, "1GB"), Effect::Adjusted);
        assert!(read(buffers, "1024").equals_default() && !read(buffers, "16384").equals_default());
        let timeout = ["checkpoint_timeout", "30min", "1800", "s", "integer", "f", "30", "86400"];
        assert_eq!(effect(timeout, "1800"), Effect::AsAsked);
        assert_eq!(effect(timeout, "0.5h"), Effect::AsAsked);
        let commit = ["synchronous_commit", "on", "on", "", "enum", "f", "", ""];
        assert_eq!(effect(commit, "true"), Effect::AsAsked);
        let jit = ["jit", "off", "on", "", "bool", "f", "", ""];
        assert_eq!(effect(jit, "on"), Effect::Ignored, "without its library");
        let cost = ["random_page_cost", "1.1", "1.1", "", "real", "f", "0", "1.79769e+308"];
        assert_eq!(effect(cost, "1.1"), Effect::AsAsked);
    }
}
