//! The table of components.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use dbdyno_units::{Bytes, grouped};

use super::TextOptions;
use super::layout::{Lines, shortened};
use crate::Audit;
use crate::components::Component;

/// Maximum number of rows.
const ROWS: usize = 40;

pub(super) fn render(out: &mut Lines, audit: &Audit, options: &TextOptions) {
    let components = audit.components();
    // A single row would only repeat the header.
    if components.is_empty() || audit.objects.len() == 1 {
        return;
    }
    let rows = gathered(&components, options.entries(ROWS));
    let (numbers, words) = (8 + 5 + 9 + 10, 2 + 9 + 8 + 9);
    let name = out.width.saturating_sub(numbers + words).max(12);
    out.blank();
    out.line(&format!(
        "{:<name$}{:>8}{:>5}  {:<9}{:<8}{:<9}{:>9}{:>10}",
        "component", "objects", "sets", "level", "lto", "march", "text", "offending"
    ));
    out.rule();
    let mut total = gathered(&components, 1);
    let sets: BTreeSet<usize> = audit.objects.iter().filter_map(|object| object.flags).collect();
    for row in &mut total {
        row.flag_sets = sets.len();
    }
    let mut all: Vec<&Component> = rows.iter().collect();
    if rows.len() > 1 {
        all.extend(&total);
    }
    for (index, component) in all.iter().enumerate() {
        let label = if index == rows.len() { "all" } else { &component.name };
        let offending = match component.offending {
            0 => "–".to_owned(),
            count => grouped(count as u64),
        };
        out.line(&format!(
            "{:<name$}{:>8}{:>5}  {:<9}{:<8}{:<9}{:>9}{:>10}",
            shortened(label, name),
            grouped(component.objects as u64),
            component.flag_sets,
            values(&component.optimization, component.objects, 8),
            values(&component.lto, component.objects, 7),
            values(&component.march, component.objects, 8),
            component.text.map_or_else(|| "–".to_owned(), |text: Bytes| text.to_string()),
            offending,
        ));
    }
}

/// The values of a property, the most frequent first: `O2`, `O2 O0·3`; `?` if not recorded.
fn values<T: Display>(counts: &BTreeMap<T, usize>, objects: usize, room: usize) -> String {
    let mut sorted: Vec<(String, usize)> =
        counts.iter().map(|(value, count)| (value.to_string(), *count)).collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let known: usize = sorted.iter().map(|(_, count)| count).sum();
    if known < objects {
        sorted.push(("?".to_owned(), objects - known));
    }
    let mut text = String::new();
    for (index, (value, count)) in sorted.iter().enumerate() {
        let part = if index == 0 { value.clone() } else { format!(" {value}·{count}") };
        if text.chars().count() + part.chars().count() > room {
            text.push_str(if index == 0 { "" } else { "…" });
            if index == 0 {
                text.push_str(&part.chars().take(room).collect::<String>());
            }
            break;
        }
        text.push_str(&part);
    }
    text
}

/// Merges directories at the greatest depth that gives at most `most` rows.
fn gathered(components: &[Component], most: usize) -> Vec<Component> {
    let depth_of = |name: &str| name.split('/').count();
    let deepest = components.iter().map(|component| depth_of(&component.name)).max().unwrap_or(0);
    for depth in (0..=deepest).rev() {
        let mut rows: BTreeMap<String, Component> = BTreeMap::new();
        for component in components {
            let parts: Vec<&str> = component.name.split('/').take(depth).collect();
            let name = if parts.is_empty() { ".".to_owned() } else { parts.join("/") };
            match rows.get_mut(&name) {
                Some(row) => add(row, component),
                None => {
                    rows.insert(name.clone(), Component { name, ..component.clone() });
                }
            }
        }
        if rows.len() <= most || depth == 0 {
            return rows.into_values().collect();
        }
    }
    components.to_vec()
}

/// Adds a component to a row. Directories may share command lines, so the sum of `flag_sets` would
/// be an upper bound; the maximum is the lower bound, and closer to the true number if a build has
/// few.
fn add(row: &mut Component, other: &Component) {
    row.objects += other.objects;
    row.flag_sets = row.flag_sets.max(other.flag_sets);
    row.offending += other.offending;
    for (level, count) in &other.optimization {
        *row.optimization.entry(*level).or_default() += count;
    }
    for (form, count) in &other.lto {
        *row.lto.entry(*form).or_default() += count;
    }
    for (march, count) in &other.march {
        *row.march.entry(march.clone()).or_default() += count;
    }
    row.text = match (row.text, other.text) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
}
