//! The message for each kind of problem.

use super::shown;

const HEAD: &str = "name = 'test'\nbaseline = 'a'\n";
const CANDIDATE: &str = "\n[[candidate]]\nname = 'a'\nsystem = 'sqlite'\nvariant = 'rel'\n";

/// The problems of an otherwise valid experiment with these sections, which start in line 3.
pub fn with(sections: &str) -> String {
    shown(&format!("{HEAD}{sections}{CANDIDATE}"))
}

#[test]
fn empty_file_is_reported() {
    assert_problems!(shown(""), @r"
    1:1 missing key `name`

    ^
    1:1 missing key `baseline`

    ^
    1:1 missing [[candidate]]

    ^ add one with `name` and `system`
    ");
}

#[test]
fn syntax_error_is_reported() {
    assert_problems!(shown("name = 'test'\nbaseline = rel_o2\n"), @r"
    2:12 string values must be quoted, expected literal string
    baseline = rel_o2
               ^^^^^^
    ");
}

#[test]
fn unknown_keys_are_reported() {
    assert_problems!(
        with("sed = 2\n[schedule]\nslcie = '50ms'\n[worklod]\nrows = 1"),
        @r"
    3:1 unknown key `sed`
    sed = 2
    ^^^ did you mean `seed`?
    5:1 unknown key `slcie` in [schedule]
    slcie = '50ms'
    ^^^^^ did you mean `slice`?
    6:2 unknown key `worklod`
    [worklod]
     ^^^^^^^ did you mean `workload`?
    "
    );
}

#[test]
fn wrong_types_are_reported() {
    assert_problems!(
        with("control = 'no'\nseed = -1\nworkload = 1\nschedule.slice = 50"),
        @r#"
    3:11 `control` must be true or false, not a string
    control = 'no'
              ^^^^
    4:8 `seed` is out of range
    seed = -1
           ^^ it must be from 0 to 9223372036854775807
    5:12 `workload` must be a table, not an integer
    workload = 1
               ^
    6:18 `slice` must be a duration such as "50ms", not an integer
    schedule.slice = 50
                     ^^
    "#
    );
}

#[test]
fn invalid_names_are_reported() {
    assert_problems!(
        shown(&format!("name = 'a b'\nbaseline = 'a'{CANDIDATE}")),
        @r"
    1:8 `a b` cannot be a name
    name = 'a b'
           ^^^^^ names are made of letters a–z and A–Z, digits and - _ .
    "
    );
    let long = shown(&format!("name = '{}'\nbaseline = 'a'{CANDIDATE}", "n".repeat(101)));
    assert!(long.contains("longer than 100 characters"), "{long}");
    assert!(long.contains("^ it has 101"), "{long}");
    assert_problems!(
        shown(&format!("name = '.a'\nbaseline = 'a'{CANDIDATE}")),
        @r"
    1:8 a name must start with a letter or a digit
    name = '.a'
           ^^^^ names are made of letters a–z and A–Z, digits and - _ .
    "
    );
}

#[test]
fn invalid_workload_is_reported() {
    assert_problems!(
        with("[workload]\ntables = 0\nrows = 500\nclients = 2000\nmicrobenchmarks = ['point-qeury*', 'wirte', 'read-only']"),
        @r"
    4:10 `tables` is out of range
    tables = 0
             ^ it must be from 1 to 1024
    5:8 `rows` is out of range
    rows = 500
           ^^^ it must be from 1000 to 1000000000000
    6:11 `clients` is out of range
    clients = 2000
              ^^^^ it must be from 1 to 1024
    7:20 no microbenchmark is called `point-qeury*`
    microbenchmarks = ['point-qeury*', 'wirte', 'read-only']
                       ^^^^^^^^^^^^^^ did you mean `point-query*`?
    7:36 no microbenchmark is called `wirte`
    microbenchmarks = ['point-qeury*', 'wirte', 'read-only']
                                       ^^^^^^^ did you mean `write`?
    7:45 no microbenchmark is called `read-only`
    microbenchmarks = ['point-qeury*', 'wirte', 'read-only']
                                                ^^^^^^^^^^^ did you mean `read-only*`?
    "
    );
}

#[test]
fn range_longer_than_the_table_is_rejected() {
    assert_problems!(with("[workload]\nrows = 10_000"), @r"
    4:8 10000 rows are not enough for read-only_range=10000
    rows = 10_000
           ^^^^^^ it reads 10000 keys per statement: use more rows than that
    ");
}

#[test]
fn chained_offsets_add_up_to_the_range() {
    let text = |rows: u32| {
        format!(
            "[workload]\nrows = {rows}\nmicrobenchmarks = ['own']\n[[microbenchmark]]\nname = 'own'\n\
             group = 'range-1'\nstatements = [{{ sql = 'SELECT :low, :mid, :high FROM {{table}}', rows = 'any', \
             draw = {{ low = 'uniform', mid = 'low + 5000', high = 'mid + 5000' }} }}]"
        )
    };
    let problems = with(&text(10_001));
    assert!(problems.contains("10001 rows are not enough for own"), "{problems}");
    assert!(problems.contains("it reads 10001 keys per statement"), "{problems}");
    assert!(!with(&text(10_002)).contains("not enough"), "{}", with(&text(10_002)));
}

#[test]
fn rows_of_a_server_have_keys_of_32_bits() {
    let text = |candidate: &str, rows: u64| {
        shown(&format!("{HEAD}[workload]\nrows = {rows}\n[[candidate]]\nname = 'a'\n{candidate}"))
    };
    let server = "system = 'mariadb'\n";
    let problems = text(server, 2_000_000_001);
    assert!(problems.contains("test.toml:4:8") && problems.contains("32 bits"), "{problems}");
    assert_eq!(text(server, 2_000_000_000), "none");
    assert_eq!(text("system = 'sqlite'\nvariant = 'rel'\n", 3_000_000_000), "none");
}

#[test]
fn empty_selection_is_rejected() {
    assert_problems!(with("[workload]\nmicrobenchmarks = []"), @r"
    4:19 `microbenchmarks` is empty
    microbenchmarks = []
                      ^^ remove `microbenchmarks` to select all
    ");
}

#[test]
fn invalid_schedule_is_reported() {
    assert_problems!(
        with("[schedule]\nslice = '50'\nwrite_slice = '2h'\npace = 'clock'\nwarmup_blocks = 0\n\
              min_blocks = 5\ntarget = '0.5'\nbudget = '2sec'\nrestarts = 101"),
        @r"
    4:9 `slice`: `50` has no unit
    slice = '50'
            ^^^^ write a duration as `50ms`; units are ns, us, ms, s, min and h
    5:15 `write_slice` is out of range
    write_slice = '2h'
                  ^^^^ it must be from 1 ms to 1 h 0 min
    6:8 unknown `pace`: `clock`
    pace = 'clock'
           ^^^^^^^ valid are `events`, `time`
    7:17 `warmup_blocks` is out of range
    warmup_blocks = 0
                    ^ it must be from 1 to 1000000
    8:14 `min_blocks` is out of range
    min_blocks = 5
                 ^ it must be from 6 to 1000000
    9:10 `target`: `0.5` has no unit
    target = '0.5'
             ^^^^^ write a percentage as `0.5%`
    10:10 `budget`: `sec` is not a unit of time
    budget = '2sec'
             ^^^^^^ did you mean `2s`? units are ns, us, ms, s, min and h
    11:12 `restarts` is out of range
    restarts = 101
               ^^^ it must be from 1 to 100
    "
    );
}

#[test]
fn pace_of_events_is_rejected_with_many_clients() {
    assert_problems!(with("[workload]\nclients = 4\n[schedule]\npace = 'events'"), @r#"
    6:8 `pace = "events"` needs one client
    pace = 'events'
           ^^^^^^^^ several clients finish at different times; use "time"
    "#);
}

#[test]
fn invalid_cpus_and_checks_are_reported() {
    assert_problems!(
        with("[cpus]\nsystem = '3-1'\ndbdyno = 0\n[checks]\nmax_error_share = '101%'"),
        @r#"
    4:10 invalid CPU list `3-1`
    system = '3-1'
             ^^^^^ use numbers and ascending ranges, such as "0-3,6"
    5:10 `dbdyno` must be a string, not an integer
    dbdyno = 0
             ^
    7:19 `max_error_share` is out of range
    max_error_share = '101%'
                      ^^^^^^ it must be from 0% to 100%
    "#
    );
}

#[test]
fn invalid_sqlite_settings_are_reported() {
    assert_problems!(
        with("[sqlite]\npage_size = 5000\ncache_size = '256MB'\njournal_mode = 'memory'\n\
              synchronous = 'on'\nmmap_size = 0"),
        @r"
    4:13 `page_size` must be a power of two
    page_size = 5000
                ^^^^ valid values: 512 B, 1 KiB, 2 KiB, 4 KiB … 64 KiB
    5:14 `cache_size`: `MB` is not a unit of memory
    cache_size = '256MB'
                 ^^^^^^^ units are B, KiB, MiB, GiB and TiB
    6:16 unknown `journal_mode`: `memory`
    journal_mode = 'memory'
                   ^^^^^^^^ valid are `wal`, `delete`, `truncate`, `persist`
    7:15 unknown `synchronous`: `on`
    synchronous = 'on'
                  ^^^^ valid are `off`, `normal`, `full`
    8:1 unknown key `mmap_size` in [sqlite]
    mmap_size = 0
    ^^^^^^^^^
    "
    );
}

#[test]
fn invalid_candidates_are_reported() {
    assert_problems!(
        shown(
            "name = 'test'\nbaseline = 'rel_02'\n\
             [[candidate]]\nname = 'rel_o2'\nsystem = 'sqlite'\nvariant = 'rel_02'\n\
             [[candidate]]\nname = 'rel_o2'\nsystem = 'sqlite'\nvariant = 'rel'\n\
             flags = ['-O3', 'fast']\nsqlite = { cache = '1MiB' }\n\
             [[candidate]]\nname = 'control'\nsystem = 'sqlite'\n\
             [[candidate]]\nsystem = 'sqlite'\nvariant = 'rel'\ncompiler = ''\n\
             injected_delay = '2000%'\n"
        ),
        @r#"
        2:12 unknown candidate `rel_02`
        baseline = 'rel_02'
                   ^^^^^^^^ did you mean `rel_o2`?
        6:11 unknown variant `rel_02`
        variant = 'rel_02'
                  ^^^^^^^^ did you mean `rel_o2`?
        8:8 duplicate candidate name `rel_o2`
        name = 'rel_o2'
               ^^^^^^^^ first used in line 4
        11:17 `fast` is not a compiler flag
        flags = ['-O3', 'fast']
                        ^^^^^^ flags start with `-`; join arguments: "--param=max-inline=9"
        12:12 unknown key `cache` in `candidate.sqlite`
        sqlite = { cache = '1MiB' }
                   ^^^^^ did you mean `cache_size`?
        13:1 missing key `variant` in [[candidate]]
        [[candidate]]
        ^^^^^^^^^^^^^ add one, such as `variant = "rel"`
        14:8 reserved name `control`
        name = 'control'
               ^^^^^^^^^ it is the name of the second instance of the baseline
        16:1 missing key `name` in [[candidate]]
        [[candidate]]
        ^^^^^^^^^^^^^
        19:12 `compiler` is not the name of a compiler
        compiler = ''
                   ^^ use `gcc`, `clang`, a versioned name or a path
        20:18 `injected_delay` is out of range
        injected_delay = '2000%'
                         ^^^^^^^ it must be from 0% to 1000%
        "#
    );
}

#[test]
fn baseline_with_an_invalid_name_is_reported_once() {
    for (name, message) in [("a b", "`a b` cannot be a name"), ("control", "reserved name")] {
        let invalid =
            format!("[[candidate]]\nname = '{name}'\nsystem = 'sqlite'\nvariant = 'rel'\n");
        let shown = shown(&format!("name = 'test'\nbaseline = '{name}'\n{CANDIDATE}{invalid}"));
        assert!(shown.contains(message) && shown.matches("error:").count() == 1, "{shown}");
    }
}

#[test]
fn missing_candidates_are_reported() {
    assert_problems!(shown("name = 'test'\nbaseline = 'a'\ncandidate = []"), @r"
    1:1 missing [[candidate]]
    name = 'test'
    ^ add one with `name` and `system`
    ");
}

#[test]
fn single_table_of_a_candidate_is_reported_once() {
    assert_problems!(shown("name = 'x'\nbaseline = 'a'\n[candidate]\nname = 'a'"), @r"
    3:2 `candidate` is a single table
    [candidate]
     ^^^^^^^^^ write `[[candidate]]`
    ");
}
