//! `[cpus]`: which CPUs the servers and dbdyno use.

use dbdyno_document::{Problem, Table};
use dbdyno_types::ClientWait;

use crate::experiment::Cpus;

/// More than Linux supports on any machine.
const CPU_LIMIT: u32 = 8192;

/// Reads the section; without it, the CPUs are chosen by the machine's layout.
pub fn read(table: Option<Table<'_>>) -> Cpus {
    let mut cpus = Cpus::default();
    if let Some(mut table) = table {
        cpus.system = list(&mut table, "system");
        cpus.dbdyno = list(&mut table, "dbdyno");
        cpus.prevent_idle = table.bool("prevent_idle").map(|prevent_idle| prevent_idle.value);
        let words = ClientWait::ALL.map(|wait| (wait.name(), wait));
        cpus.wait = table.choice("wait", &words).map(|wait| wait.value);
        table.finish();
    }
    cpus
}

/// A list of CPUs in the format of Linux: `0-3,6`. Whether they exist is not checked here.
pub fn list(table: &mut Table<'_>, key: &'static str) -> Option<String> {
    let list = table.string(key)?;
    if list.value.split(',').all(is_range) {
        return Some(list.value.to_owned());
    }
    let message = format!("invalid CPU list `{}`", list.value);
    let help = "use numbers and ascending ranges, such as \"0-3,6\"";
    table.report(Problem::new(list.span, message).help(help));
    None
}

fn is_range(text: &str) -> bool {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    matches!((cpu(first), cpu(last)), (Some(first), Some(last)) if first <= last)
}

fn cpu(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|cpu| *cpu < CPU_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_numbers_and_ranges() {
        for (text, right) in [
            ("0", true),
            ("0-3,6", true),
            ("7-7", true),
            ("", false),
            ("0,", false),
            ("3-0", false),
            ("-1", false),
            ("+1", false),
            ("1-2-3", false),
            ("all", false),
            ("0, 1", false),
            ("99999999999", false),
        ] {
            assert_eq!(text.split(',').all(is_range), right, "{text}");
        }
    }
}
