//! The settings in force in MariaDB and MySQL.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error};

use crate::in_force::{self, ReportedSetting, SettingInForce, SettingKind, SettingNumber};
use crate::pairs;

type All = Vec<(String, SettingInForce)>;

/// What an option is called as a variable, where these differ.
const VARIABLES: [(&str, &str); 4] = [
    ("transaction_isolation", "tx_isolation"),
    ("tx_isolation", "transaction_isolation"),
    ("default_time_zone", "time_zone"),
    ("skip_bdb", "have_bdb"),
];

/// Options without a variable, beside those of plugins, that begin the name of one.
const WITHOUT_VARIABLE: &str = "log_tc";

/// Options with the name of a file whose variables are switches.
const FILES: [&str; 1] = ["log_bin"];

/// The settings with these names.
pub(super) fn settings(
    connection: &mut MySqlConnection,
    names: &[String],
) -> Result<Vec<ReportedSetting>, Error> {
    let is_mariadb = connection.is_mariadb();
    let all = if is_mariadb { of_mariadb(connection)? } else { of_mysql(connection)? };
    let plugins = connection.query("SELECT LOWER(PLUGIN_NAME) FROM information_schema.PLUGINS")?;
    let plugins: Vec<String> = plugins.into_iter().flatten().flatten().collect();
    Ok(in_force::of_names(names, &all, |name| find(name, &all, &plugins)))
}

fn of_mariadb(connection: &mut MySqlConnection) -> Result<All, Error> {
    let sql = "SELECT VARIABLE_NAME, GLOBAL_VALUE, VARIABLE_TYPE, GLOBAL_VALUE_ORIGIN, \
               DEFAULT_VALUE, NUMERIC_MIN_VALUE, NUMERIC_MAX_VALUE, ENUM_VALUE_LIST \
               FROM information_schema.SYSTEM_VARIABLES WHERE GLOBAL_VALUE IS NOT NULL";
    let rows = connection.query(sql)?;
    Ok(rows.iter().filter_map(|row| mariadb_setting(row)).collect())
}

fn mariadb_setting(row: &[Option<String>]) -> Option<(String, SettingInForce)> {
    let [Some(name), Some(value), Some(kind), Some(origin), default, least, most, words] = row
    else {
        return None;
    };
    let kind = match kind.as_str() {
        "BOOLEAN" => SettingKind::Switch,
        "ENUM" => {
            let words = words.as_deref().unwrap_or_default().split(',');
            SettingKind::Word(words.map(str::to_owned).collect())
        }
        "SET" | "FLAGSET" => SettingKind::Words,
        "VARCHAR" => SettingKind::Text,
        _ => number(value, least.as_deref(), most.as_deref()),
    };
    let is_default = origin == "COMPILE-TIME";
    let default = default.clone();
    Some((name.to_lowercase(), SettingInForce { value: value.clone(), kind, is_default, default }))
}

fn number(value: &str, least: Option<&str>, most: Option<&str>) -> SettingKind {
    let parse = |text: &str| text.parse::<f64>().ok();
    let range =
        least.and_then(parse).zip(most.and_then(parse)).filter(|(least, most)| least < most);
    match parse(value) {
        Some(value) => SettingKind::Number(SettingNumber { value, unit: 1.0, range }),
        None => SettingKind::Text,
    }
}

/// MySQL does not tell the kinds of its variables; the form of a value shows it.
fn of_mysql(connection: &mut MySqlConnection) -> Result<All, Error> {
    let sql = "SELECT VARIABLE_NAME, VARIABLE_SOURCE, MIN_VALUE, MAX_VALUE \
               FROM performance_schema.variables_info";
    // Since 8.0.
    let sources = connection.query(sql).unwrap_or_default();
    let values = pairs(connection.query("SHOW GLOBAL VARIABLES")?);
    Ok(values
        .map(|(name, value)| {
            let source = sources
                .iter()
                .find(|row| row.first().is_some_and(|it| it.as_deref() == Some(&*name)));
            let column = |index: usize| source.and_then(|row| row.get(index)?.as_deref());
            let kind = match value.as_str() {
                "ON" | "OFF" => SettingKind::Switch,
                _ if name == "sql_mode" || value.contains("=on,") => SettingKind::Words,
                _ => number(&value, column(2), column(3)),
            };
            let is_default = column(1) == Some("COMPILED");
            (name.to_lowercase(), SettingInForce { value, kind, is_default, default: None })
        })
        .collect())
}

/// The variable of an option: of its own name, or of a prefix of one that is unique and not an option of its own, as
/// each plugin has one of its name. `skip_` and `disable_` turn a switch round.
fn find(option: &str, all: &All, plugins: &[String]) -> Option<SettingInForce> {
    let option = option.to_lowercase().replace('-', "_");
    let option = option.strip_prefix("loose_").unwrap_or(&option);
    let exact = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, it)| it.clone());
    let alias = || exact(VARIABLES.iter().find(|(name, _)| *name == option)?.1);
    let found = exact(option).or_else(alias).or_else(|| exact(option.strip_prefix("enable_")?));
    if let Some(mut found) = found {
        if FILES.contains(&option) {
            found.kind = SettingKind::File;
        }
        return Some(found);
    }
    let turned = ["skip_", "disable_"].iter().find_map(|prefix| option.strip_prefix(prefix));
    if let Some(mut found) = turned.and_then(exact).filter(|it| it.kind == SettingKind::Switch) {
        found.value = if found.value == "ON" { "OFF" } else { "ON" }.to_owned();
        found.default = None;
        return Some(found);
    }
    if option == WITHOUT_VARIABLE || plugins.iter().any(|plugin| plugin == option) {
        return None;
    }
    let mut begun = all.iter().filter(|(known, _)| known.starts_with(option));
    let first = begun.next().filter(|_| !option.is_empty())?;
    begun.next().is_none().then(|| first.1.clone())
}

#[cfg(test)]
mod tests {
    use crate::in_force::Effect;

    use super::*;

    fn all() -> All {
        let row = |name: &str, value: &str, kind: &str, origin: &str, words: Option<&str>| {
            let texts = [name, value, kind, origin].map(|text| Some(text.to_owned()));
            let numbers = ["1", "0", "3"].map(|text| Some(text.to_owned()));
            let row = [&texts[..], &numbers, &[words.map(str::to_owned)]].concat();
            mariadb_setting(&row).unwrap()
        };
        vec![
            row("INNODB_DOUBLEWRITE", "ON", "BOOLEAN", "COMPILE-TIME", None),
            row("INNODB_FLUSH_LOG_AT_TRX_COMMIT", "3", "BIGINT UNSIGNED", "CONFIG", None),
            row(
                "TX_ISOLATION",
                "READ-COMMITTED",
                "ENUM",
                "CONFIG",
                Some("READ-UNCOMMITTED,READ-COMMITTED"),
            ),
            row("LOG_BIN", "ON", "BOOLEAN", "CONFIG", None),
            row("SKIP_NAME_RESOLVE", "ON", "BOOLEAN", "CONFIG", None),
            row("LOG_TC_SIZE", "24576", "BIGINT UNSIGNED", "CONFIG", None),
            row("NGRAM_TOKEN_SIZE", "2", "BIGINT UNSIGNED", "CONFIG", None),
            row("TIME_ZONE", "+00:00", "VARCHAR", "CONFIG", None),
        ]
    }

    #[test]
    fn options_are_found_by_their_spellings() {
        let all = all();
        let effect = |option: &str, asked: &str| {
            find(option, &all, &["ngram".to_owned()]).map(|one| one.effect(asked))
        };
        let is_default = |option: &str| find(option, &all, &[]).map(|one| one.equals_default());
        assert_eq!(is_default("innodb_doublewrite"), Some(true));
        assert_eq!(is_default("skip_innodb_doublewrite"), Some(false));
        assert_eq!(is_default("innodb_flush_log_at_trx_commit"), Some(false));
        assert_eq!(effect("innodb_doublewrite", "MAYBE"), Some(Effect::Ignored));
        assert_eq!(effect("loose-innodb-doublewrite", "TRUE"), Some(Effect::AsAsked));
        assert_eq!(effect("skip_innodb_doublewrite", "0"), Some(Effect::AsAsked));
        assert_eq!(effect("innodb_flush_log_at_trx_commit", "7"), Some(Effect::Ignored));
        assert_eq!(effect("innodb_flush_log_at", "3"), Some(Effect::AsAsked), "a unique prefix");
        assert_eq!(effect("transaction_isolation", "1"), Some(Effect::AsAsked));
        assert_eq!(effect("default-time-zone", "+00:00"), Some(Effect::AsAsked));
        assert_eq!(effect("skip_name_resolve", "1"), Some(Effect::AsAsked));
        assert_eq!(effect("log_bin", "mysql-bin"), Some(Effect::AsAsked), "the name of a file");
        // MariaDB takes it for a name.
        assert_eq!(effect("log_bin", "OFF"), Some(Effect::Ignored));
        assert_eq!(effect("innodb_dubblewrite", "ON"), None);
        assert_eq!(effect("loose_innodb_x", "ON"), None);
        assert_eq!(effect("log_tc", "tc.log"), None, "an option without a variable");
        assert_eq!(effect("ngram", "FORCE"), None, "of a plugin");
        assert_eq!(effect("ngram_tok", "2"), Some(Effect::AsAsked));
        let reported = in_force::of_names(&["loose_innodb_dublewrite".to_owned()], &all, |name| {
            find(name, &all, &[])
        });
        let near = in_force::SettingState::Unknown(Some("innodb_doublewrite".to_owned()));
        assert_eq!(reported[0].state, near);
    }
}
