//! Groups of microbenchmarks, and abbreviation of long column names.

use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::{Group, Throughput};

/// The tests that are part of sysbench, and the published groups they correspond to.
const SYSBENCH: [(&str, Group); 11] = [
    ("oltp_point_select", Group::Point1),
    ("select_random_points", Group::Point2),
    ("select_random_ranges", Group::Range1),
    ("oltp_read_only", Group::Range2),
    ("oltp_read_write", Group::Writes),
    ("oltp_write_only", Group::Writes),
    ("oltp_update_index", Group::Writes),
    ("oltp_update_non_index", Group::Writes),
    ("oltp_delete", Group::Writes),
    ("oltp_insert", Group::Writes),
    ("bulk_insert", Group::Writes),
];

/// A microbenchmark's relation to the published ones.
pub(crate) struct CatalogMatch {
    /// Its index in the running order; unpublished ones come last.
    pub(crate) index: usize,
    pub(crate) group: Option<Group>,
    /// Whether published tables count its throughput in millions of rows.
    pub(crate) counts_rows: bool,
}

/// Look a microbenchmark up by its name, then by its name without the range.
pub(crate) fn look_up(catalog: &Catalog, name: &str) -> CatalogMatch {
    let entries = catalog.entries();
    let base = |name: &str| name.split("_range=").next().unwrap_or_default().to_owned();
    let exact = entries.iter().position(|entry| entry.microbenchmark.name == name);
    let index = exact
        .or_else(|| entries.iter().position(|one| base(&one.microbenchmark.name) == base(name)));
    let found = index.map(|index| &entries[index].microbenchmark);
    let own = || SYSBENCH.iter().find(|(test, _)| *test == name).map(|(_, group)| group.clone());
    CatalogMatch {
        index: index.unwrap_or(entries.len()),
        group: found.map(|found| found.group.clone()).or_else(own),
        counts_rows: found.is_some_and(|found| found.throughput == Throughput::MillionRowsRead),
    }
}

/// Remove the dot-separated parts that all names start or end with:
/// `x.my8013.z10a.pk1` and `x.my8014.z10a.pk1` become `my8013` and `my8014`.
pub(crate) fn shorten(names: &[String]) -> Vec<String> {
    let parts: Vec<Vec<&str>> = names.iter().map(|name| name.split('.').collect()).collect();
    let Some((first, rest)) = parts.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return names.to_vec();
    };
    let shortest = parts.iter().map(Vec::len).min().unwrap_or(0);
    let same_at = |at: &dyn Fn(&Vec<&str>) -> usize| {
        rest.iter().all(|other| other[at(other)] == first[at(first)])
    };
    let start = (0..shortest).take_while(|at| same_at(&|_| *at)).count();
    let end = (0..shortest - start.min(shortest))
        .take_while(|at| same_at(&|parts| parts.len() - 1 - at))
        .count();
    let short: Vec<String> =
        parts.iter().map(|parts| parts[start..parts.len() - end].join(".")).collect();
    // Keep the full names if one would become empty.
    if short.iter().any(String::is_empty) { names.to_vec() } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(names: &[&str]) -> Vec<String> {
        shorten(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn common_parts_of_names_are_removed() {
        assert_eq!(short(&["x.my8013.z10a.pk1", "x.my8014.z10a.pk1"]), ["my8013", "my8014"]);
        assert_eq!(short(&["a.b", "a.b.c"]), ["a.b", "a.b.c"]);
        assert_eq!(short(&["8.0.13", "8.0.36"]), ["13", "36"]);
        assert_eq!(short(&["only.one"]), ["only.one"]);
        assert_eq!(short(&["innodb", "myrocks"]), ["innodb", "myrocks"]);
        assert!(short(&[]).is_empty());
    }

    #[test]
    fn groups_match_the_published_ones() {
        let catalog = Catalog::builtin();
        let group = |name: &str| look_up(&catalog, name).group;
        assert_eq!(group("random-points.pre_range=1000"), Some(Group::Point2));
        assert_eq!(group("random-points_range=7"), Some(Group::Point2));
        assert_eq!(group("point-query"), Some(Group::Point1));
        assert_eq!(group("oltp_read_only"), Some(Group::Range2));
        assert_eq!(group("something"), None);
        assert!(look_up(&catalog, "scan_range=100").counts_rows);
        assert!(!look_up(&catalog, "insert_range=100").counts_rows);
    }
}
