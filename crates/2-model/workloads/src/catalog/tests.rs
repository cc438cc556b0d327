use super::*;
use crate::definition::Bound;
use crate::program::{Program, Tables};

/// The names of the published tables, sorted.
const PUBLISHED: [&str; 42] = [
    "delete_range=100",
    "hot-points_range=100",
    "insert_range=100",
    "point-query.pre_range=100",
    "point-query_range=100",
    "points-covered-pk.pre_range=100",
    "points-covered-pk_range=100",
    "points-covered-si.pre_range=100",
    "points-covered-si_range=100",
    "points-notcovered-pk.pre_range=100",
    "points-notcovered-pk_range=100",
    "points-notcovered-si.pre_range=100",
    "points-notcovered-si_range=100",
    "random-points.pre_range=10",
    "random-points.pre_range=100",
    "random-points.pre_range=1000",
    "random-points_range=10",
    "random-points_range=100",
    "random-points_range=1000",
    "range-covered-pk.pre_range=100",
    "range-covered-pk_range=100",
    "range-covered-si.pre_range=100",
    "range-covered-si_range=100",
    "range-notcovered-pk.pre_range=100",
    "range-notcovered-pk_range=100",
    "range-notcovered-si.pre_range=100",
    "range-notcovered-si_range=100",
    "read-only.pre_range=10",
    "read-only.pre_range=100",
    "read-only.pre_range=10000",
    "read-only_range=10",
    "read-only_range=100",
    "read-only_range=10000",
    "read-write_range=10",
    "read-write_range=100",
    "scan_range=100",
    "update-index_range=100",
    "update-inlist_range=100",
    "update-nonindex_range=100",
    "update-one_range=100",
    "update-zipf_range=100",
    "write-only_range=10000",
];

fn names(microbenchmarks: &[Microbenchmark]) -> Vec<&str> {
    microbenchmarks.iter().map(|one| one.name.as_str()).collect()
}

fn selected(words: &[&str]) -> Vec<String> {
    let selected = Catalog::builtin().select(words.iter().copied()).unwrap();
    selected.into_iter().map(|one| one.name).collect()
}

/// A catalog with the user-defined microbenchmarks in `text`, and their problems.
fn with_own(text: &str) -> (Catalog, Result<(), Problems>) {
    let document = Document::parse("own.toml", text).unwrap();
    let mut catalog = Catalog::builtin();
    for table in document.root().tables("microbenchmark") {
        catalog.add(table, NO_FILES);
    }
    (catalog, document.finish())
}

fn own(name: &str, more: &str) -> String {
    format!(
        "[[microbenchmark]]\nname = '{name}'\ngroup = 'point-1'\n{more}\n\
             statements = [{{ sql = 'SELECT 1 FROM {{table}}', rows = 'any' }}]\n"
    )
}

#[test]
fn names_are_the_published_ones() {
    let mut all = selected(&["all"]);
    all.sort();
    assert_eq!(all, PUBLISHED);
}

#[test]
fn running_order_is_the_published_one() {
    let all = Catalog::builtin().select(["all"]).unwrap();
    assert_eq!(
        names(&all),
        [
            "point-query.pre_range=100",
            "random-points.pre_range=10",
            "random-points.pre_range=100",
            "random-points.pre_range=1000",
            "read-only.pre_range=10",
            "read-only.pre_range=100",
            "read-only.pre_range=10000",
            "points-covered-pk.pre_range=100",
            "points-notcovered-pk.pre_range=100",
            "points-covered-si.pre_range=100",
            "points-notcovered-si.pre_range=100",
            "range-covered-pk.pre_range=100",
            "range-notcovered-pk.pre_range=100",
            "range-covered-si.pre_range=100",
            "range-notcovered-si.pre_range=100",
            "update-inlist_range=100",
            "update-index_range=100",
            "update-nonindex_range=100",
            "update-one_range=100",
            "update-zipf_range=100",
            "write-only_range=10000",
            "read-write_range=10",
            "read-write_range=100",
            "scan_range=100",
            "read-only_range=10",
            "read-only_range=100",
            "read-only_range=10000",
            "point-query_range=100",
            "random-points_range=10",
            "random-points_range=100",
            "random-points_range=1000",
            "hot-points_range=100",
            "points-covered-pk_range=100",
            "points-notcovered-pk_range=100",
            "range-covered-pk_range=100",
            "range-notcovered-pk_range=100",
            "points-covered-si_range=100",
            "points-notcovered-si_range=100",
            "range-covered-si_range=100",
            "range-notcovered-si_range=100",
            "delete_range=100",
            "insert_range=100",
        ]
    );
    assert!(all.is_sorted_by_key(|one| one.stage));
    let catalog = Catalog::builtin();
    assert!(catalog.entries().is_sorted_by_key(|entry| entry.microbenchmark.stage));
}

#[test]
fn groups_have_the_published_sizes() {
    let sizes: Vec<_> =
        PUBLISHED_GROUPS.iter().map(|group| selected(&[group.name()]).len()).collect();
    assert_eq!(sizes, [11, 6, 9, 6, 10]);
    assert_eq!(["point", "range", "write"].map(|word| selected(&[word]).len()), [17, 15, 10]);
    for group in ["point-1", "range", "write"] {
        assert_eq!(published(group).collect::<Vec<_>>(), selected(&[group]));
    }
    assert_eq!(published("own").count(), 0);
}

#[test]
fn extras_run_after_the_reads_and_are_not_part_of_all() {
    let extras = selected(&["read-only-*"]);
    assert_eq!(
        extras,
        ["simple", "sum", "order", "distinct", "count"]
            .map(|kind| format!("read-only-{kind}_range=1000"))
    );
    let everything = selected(&["*"]);
    assert_eq!(everything.len(), 52);
    assert_eq!(everything[40..45], extras);
}

#[test]
fn older_read_only_tests_are_a_separate_set() {
    let names = ["oltp", "oltp_simple", "select", "select_random_points", "select_random_ranges"];
    assert_eq!(selected(&["oltp-reads"]), names);
    assert_eq!(selected(&names), names);
    assert_eq!(selected(&["select"]), ["select"]);
    let catalog = Catalog::builtin();
    let groups = names.map(|name| catalog.get(name).unwrap().group.name().to_owned());
    assert_eq!(groups, ["range-2", "range-1", "point-1", "point-2", "range-2"]);
    let sets: Vec<_> = catalog.entries().iter().filter_map(|entry| entry.set).collect();
    assert_eq!(sets, ["oltp-reads"; 5]);
}

/// `oltp` is an older name for `read-only`, and `select` for `point-query`.
#[test]
fn older_names_have_the_same_statements() {
    let catalog = Catalog::builtin();
    for (older, newer) in [("oltp", "read-only_range=100"), ("select", "point-query_range=100")] {
        let (older, newer) = (catalog.get(older).unwrap(), catalog.get(newer).unwrap());
        assert_eq!(older.statements, newer.statements);
        assert_eq!(older.transaction, newer.transaction);
    }
}

#[test]
fn missing_keys_are_allowed_with_several_clients() {
    let catalog = Catalog::builtin();
    for entry in catalog.entries() {
        let one = &entry.microbenchmark;
        assert_eq!(&one.clone().for_clients(1), one);
        let many = one.clone().for_clients(2);
        let collides = ["write-only", "read-write"].contains(&base(&one.name));
        assert_eq!(many != *one, collides, "{}", one.name);
    }
    let many = catalog.get("read-write_range=10").unwrap().clone().for_clients(16);
    let least: Vec<_> = many.statements.iter().map(|one| one.expect.at_least).collect();
    let count = Bound::Count;
    let reads = [count(1), Bound::Range, count(1), Bound::Range, count(1)];
    assert_eq!(least[..5], reads);
    assert_eq!(least[5..], [count(0), count(0), count(0), count(1)]);
    assert!(many.statements[5..].iter().all(|one| one.expect.at_most == count(1)));
}

#[test]
fn only_stages_write_and_last_change_data() {
    for entry in Catalog::builtin().entries() {
        let one = &entry.microbenchmark;
        let in_writing_stage = matches!(one.stage, Stage::Write | Stage::Last);
        assert_eq!(one.writes(), in_writing_stage, "{}", one.name);
        assert_eq!(one.writes(), one.group == Group::Writes, "{}", one.name);
    }
}

#[test]
fn every_builtin_compiles_to_a_program() {
    for entry in Catalog::builtin().entries() {
        Program::new(&entry.microbenchmark, Tables { count: 2, rows: 20_000 }).unwrap();
    }
}

#[test]
fn events_have_the_published_number_of_statements() {
    let catalog = Catalog::builtin();
    let statements = |name| {
        let tables = Tables { count: 1, rows: 20_000 };
        Program::new(catalog.get(name).unwrap(), tables).unwrap().statements_per_event()
    };
    assert_eq!(statements("point-query_range=100"), 1);
    assert_eq!(statements("read-only_range=10000"), 16);
    assert_eq!(statements("write-only_range=10000"), 6);
    assert_eq!(statements("read-write_range=10"), 20);
    assert_eq!(statements("read-only-sum_range=1000"), 3);
    assert_eq!(statements("read-only-count_range=1000"), 1);
}

#[test]
fn selection_keeps_the_running_order_without_duplicates() {
    assert_eq!(
        selected(&["insert_range=100", "scan*", "*insert*", "point-query*"]),
        [
            "point-query.pre_range=100",
            "scan_range=100",
            "point-query_range=100",
            "insert_range=100"
        ]
    );
    assert_eq!(selected(&["all", "point-1"]).len(), 42);
}

#[test]
fn unknown_word_suggests_the_nearest_valid_one() {
    let unmatched = Catalog::builtin()
        .select([
            "all",
            "point-query",
            "pointquery_range=100",
            "wirtes",
            "nonsense",
            "",
            "scna",
            "point-qeury*",
        ])
        .unwrap_err();
    let found: Vec<_> = unmatched.iter().map(|one| (one.index, one.nearest.as_deref())).collect();
    assert_eq!(
        found,
        [
            (1, Some("point-query*")),
            (2, Some("point-query_range=100")),
            (3, Some("writes")),
            (4, None),
            (5, None),
            (6, Some("scan*")),
            (7, Some("point-query*")),
        ]
    );
    assert_eq!(unmatched[3].to_string(), "no microbenchmark is called `nonsense`");
}

#[test]
fn user_defined_microbenchmarks_run_at_the_end_of_their_stage() {
    let text = own("mine", "stages = ['pre', 'post']\nranges = [5]") + &own("other", "");
    let (catalog, problems) = with_own(&text);
    problems.unwrap();
    let all = catalog.select(["all"]).unwrap();
    let all = names(&all);
    let place = |name| all.iter().position(|one| *one == name).unwrap();
    assert_eq!(place("mine.pre_range=5") + 1, place("update-inlist_range=100"));
    assert_eq!(place("mine_range=5") + 1, place("other"));
    assert_eq!(place("other") + 1, place("delete_range=100"));
    let everything = catalog.select(["*"]).unwrap();
    let names = names(&everything);
    assert_eq!(names[45], "read-only-count_range=1000");
    assert_eq!(names[46], "oltp");
    assert_eq!(names[51], "mine_range=5");
    assert_eq!(catalog.select(["point-1"]).unwrap().len(), 11 + 3);
}

#[test]
fn own_groups_select_and_full_names_take_precedence() {
    let text = own("mine", "") + &own("mine-2", "") + &own("orders", "") + &own("orders-2", "");
    let text = text.replace("group = 'point-1'\n", "");
    let text = text.replace("name = 'orders", "group = 'orders'\nname = 'orders");
    let (catalog, problems) = with_own(&text);
    problems.unwrap();
    let select = |word| -> Vec<String> {
        catalog.select([word]).unwrap().into_iter().map(|one| one.name).collect()
    };
    assert_eq!(select("own"), ["mine", "mine-2"]);
    assert_eq!(select("orders"), ["orders"]);
    assert_eq!(select("orders*"), ["orders", "orders-2"]);
    assert_eq!(select("point-1").len(), 11);
    assert_eq!(select("all").len(), 42 + 4);
    assert_eq!(catalog.select(["owm"]).unwrap_err()[0].nearest.as_deref(), Some("own"));
}

#[test]
fn misspelled_group_is_reported() {
    for (group, message) in [
        ("point1", "unknown `group`: `point1`"),
        ("write", "unknown `group`: `write`"),
        ("all", "`all` cannot be the name of a group"),
        ("two words", "`two words` cannot be the name of a group"),
    ] {
        let text = own("mine", "").replace("'point-1'", &format!("'{group}'"));
        let (_, problems) = with_own(&text);
        assert_eq!(problems.unwrap_err().list[0].message, message);
    }
}

#[test]
fn user_defined_names_must_be_unique() {
    for (text, message) in [
        (own("scan", "ranges = [100]"), "`scan` is a built-in microbenchmark"),
        (own("scan", ""), "`scan` is a built-in microbenchmark"),
        (own("read-only", "ranges = [7]"), "`read-only` is a built-in microbenchmark"),
        (own("scan_range=100", ""), "`scan_range=100` is a built-in microbenchmark"),
        (own("scan_range=200", ""), "`scan_range=200` is a built-in microbenchmark"),
        (own("point-query.pre", ""), "`point-query.pre` is a built-in microbenchmark"),
        (own("all", ""), "`all` cannot be the name of a microbenchmark"),
        (own("point", ""), "`point` cannot be the name of a microbenchmark"),
        (own("oltp-reads", ""), "`oltp-reads` cannot be the name of a microbenchmark"),
        (own("oltp", ""), "`oltp` is a built-in microbenchmark"),
        (own("mine", "") + &own("mine", ""), "`mine` is defined twice"),
    ] {
        let (_, problems) = with_own(&text);
        assert_eq!(problems.unwrap_err().list[0].message, message);
    }
}

#[test]
fn patterns_match_whole_names() {
    for (pattern, name, right) in [
        ("point-*", "point-query", true),
        ("point-*", "hot-point-", false),
        ("*", "", true),
        ("", "", true),
        ("", "a", false),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("*_range=10", "a_range=100", false),
        ("*_range=10", "a_range=10_range=10", true),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-b-b-d", false),
        ("**", "x", true),
    ] {
        assert_eq!(glob_matches(pattern, name), right, "{pattern} {name}");
    }
    let stars = "*a".repeat(1_000) + "b";
    assert!(!glob_matches(&stars, &"a".repeat(5_000)));
}

#[test]
fn sysbench_names_select_the_same_work() {
    for (sysbench, name) in [
        ("oltp_point_select", "point-query_range=100"),
        ("oltp_read_only", "read-only_range=100"),
        ("oltp_read_write", "read-write_range=100"),
        ("oltp_write_only", "write-only_range=10000"),
        ("oltp_update_index", "update-index_range=100"),
        ("oltp_update_non_index", "update-nonindex_range=100"),
        ("oltp_delete", "delete_range=100"),
        ("oltp_insert", "insert_range=100"),
        ("select_random_points", "select_random_points"),
        ("select_random_ranges", "select_random_ranges"),
    ] {
        assert_eq!(selected(&[sysbench]), [name], "{sysbench}");
    }
    let updates = selected(&["oltp_update_*"]);
    assert_eq!(updates, ["update-index_range=100", "update-nonindex_range=100"]);
}

#[test]
fn misspelt_sysbench_name_gets_the_nearest() {
    let nearest = |word| Catalog::builtin().select([word]).unwrap_err().remove(0).nearest;
    assert_eq!(nearest("oltp_read_wirte").as_deref(), Some("oltp_read_write"));
    assert_eq!(nearest("oltp_update").as_deref(), Some("oltp_update*"));
}

#[test]
fn own_microbenchmark_takes_precedence_over_a_sysbench_name() {
    let (catalog, problems) = with_own(&own("oltp_read_write", ""));
    problems.unwrap();
    let chosen = catalog.select(["oltp_read_write"]).unwrap();
    assert_eq!(names(&chosen), ["oltp_read_write"]);
}
