//! The message for each kind of problem.

use dbdyno_spec::parse;
use insta::assert_snapshot;

const HEAD: &str = "name = 'test'\nbaseline = 'a'\n";
const CANDIDATE: &str = "\n[[candidate]]\nname = 'a'\nsystem = 'sqlite'\nvariant = 'rel'\n";

/// The problems of a text.
fn shown(text: &str) -> String {
    parse("test.toml", text).map_or_else(|problems| problems.to_string(), |_| "none".into())
}

/// The problems of an otherwise valid experiment with these sections, which start in line 3.
pub fn with(sections: &str) -> String {
    shown(&format!("{HEAD}{sections}{CANDIDATE}"))
}

#[test]
fn empty_file_is_reported() {
    assert_snapshot!(shown(""), @r"
    error: missing key `name`
     --> test.toml:1:1
      |
    1 |
      | ^

    error: missing key `baseline`
     --> test.toml:1:1
      |
    1 |
      | ^

    error: missing [[candidate]]
     --> test.toml:1:1
      |
    1 |
      | ^ add one with `name` and `system`
    ");
}

#[test]
fn syntax_error_is_reported() {
    assert_snapshot!(shown("name = 'test'\nbaseline = rel_o2\n"), @r"
    error: string values must be quoted, expected literal string
     --> test.toml:2:12
      |
    2 | baseline = rel_o2
      |            ^^^^^^
    ");
}

#[test]
fn unknown_keys_are_reported() {
    assert_snapshot!(
        with("sed = 2\n[schedule]\nslcie = '50ms'\n[worklod]\nrows = 1"),
        @r"
    error: unknown key `sed`
     --> test.toml:3:1
      |
    3 | sed = 2
      | ^^^ did you mean `seed`?

    error: unknown key `slcie` in [schedule]
     --> test.toml:5:1
      |
    5 | slcie = '50ms'
      | ^^^^^ did you mean `slice`?

    error: unknown key `worklod`
     --> test.toml:6:2
      |
    6 | [worklod]
      |  ^^^^^^^ did you mean `workload`?
    "
    );
}

#[test]
fn wrong_types_are_reported() {
    assert_snapshot!(
        with("control = 'no'\nseed = -1\nworkload = 1\nschedule.slice = 50"),
        @r#"
    error: `control` must be true or false, not a string
     --> test.toml:3:11
      |
    3 | control = 'no'
      |           ^^^^

    error: `seed` is out of range
     --> test.toml:4:8
      |
    4 | seed = -1
      |        ^^ it must be from 0 to 9223372036854775807

    error: `workload` must be a table, not an integer
     --> test.toml:5:12
      |
    5 | workload = 1
      |            ^

    error: `slice` must be a duration such as "50ms", not an integer
     --> test.toml:6:18
      |
    6 | schedule.slice = 50
      |                  ^^
    "#
    );
}

#[test]
fn invalid_names_are_reported() {
    assert_snapshot!(
        shown(&format!("name = 'a b'\nbaseline = 'a'{CANDIDATE}")),
        @r"
    error: `a b` cannot be a name
     --> test.toml:1:8
      |
    1 | name = 'a b'
      |        ^^^^^ names are made of letters a–z and A–Z, digits and - _ .
    "
    );
    let long = shown(&format!("name = '{}'\nbaseline = 'a'{CANDIDATE}", "n".repeat(101)));
    assert!(long.contains("longer than 100 characters"), "{long}");
    assert!(long.contains("^ it has 101"), "{long}");
    assert_snapshot!(
        shown(&format!("name = '.a'\nbaseline = 'a'{CANDIDATE}")),
        @r"
    error: a name must start with a letter or a digit
     --> test.toml:1:8
      |
    1 | name = '.a'
      |        ^^^^ names are made of letters a–z and A–Z, digits and - _ .
    "
    );
}

#[test]
fn invalid_workload_is_reported() {
    assert_snapshot!(
        with("[workload]\ntables = 0\nrows = 500\nclients = 2000\nmicrobenchmarks = ['point-qeury*', 'wirte', 'read-only']"),
        @r"
    error: `tables` is out of range
     --> test.toml:4:10
      |
    4 | tables = 0
      |          ^ it must be from 1 to 1024

    error: `rows` is out of range
     --> test.toml:5:8
      |
    5 | rows = 500
      |        ^^^ it must be from 1000 to 1000000000000

    error: `clients` is out of range
     --> test.toml:6:11
      |
    6 | clients = 2000
      |           ^^^^ it must be from 1 to 1024

    error: no microbenchmark is called `point-qeury*`
     --> test.toml:7:20
      |
    7 | microbenchmarks = ['point-qeury*', 'wirte', 'read-only']
      |                    ^^^^^^^^^^^^^^ did you mean `point-query*`?

    error: no microbenchmark is called `wirte`
     --> test.toml:7:36
      |
    7 | microbenchmarks = ['point-qeury*', 'wirte', 'read-only']
      |                                    ^^^^^^^ did you mean `write`?

    error: no microbenchmark is called `read-only`
     --> test.toml:7:45
      |
    7 | microbenchmarks = ['point-qeury*', 'wirte', 'read-only']
      |                                             ^^^^^^^^^^^ did you mean `read-only*`?
    "
    );
}

#[test]
fn range_longer_than_the_table_is_rejected() {
    assert_snapshot!(with("[workload]\nrows = 10_000"), @r"
    error: 10000 rows are not enough for read-only_range=10000
     --> test.toml:4:8
      |
    4 | rows = 10_000
      |        ^^^^^^ it reads 10000 keys per statement: use more rows than that
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
    assert_snapshot!(with("[workload]\nmicrobenchmarks = []"), @r"
    error: `microbenchmarks` is empty
     --> test.toml:4:19
      |
    4 | microbenchmarks = []
      |                   ^^ remove `microbenchmarks` to select all
    ");
}

#[test]
fn invalid_schedule_is_reported() {
    assert_snapshot!(
        with("[schedule]\nslice = '50'\nwrite_slice = '2h'\npace = 'clock'\nwarmup_blocks = 0\n\
              min_blocks = 5\ntarget = '0.5'\nbudget = '2sec'\nrestarts = 101"),
        @r"
    error: `slice`: `50` has no unit
     --> test.toml:4:9
      |
    4 | slice = '50'
      |         ^^^^ write a duration as `50ms`; units are ns, us, ms, s, min and h

    error: `write_slice` is out of range
     --> test.toml:5:15
      |
    5 | write_slice = '2h'
      |               ^^^^ it must be from 1 ms to 1 h 0 min

    error: unknown `pace`: `clock`
     --> test.toml:6:8
      |
    6 | pace = 'clock'
      |        ^^^^^^^ valid are `events`, `time`

    error: `warmup_blocks` is out of range
     --> test.toml:7:17
      |
    7 | warmup_blocks = 0
      |                 ^ it must be from 1 to 1000000

    error: `min_blocks` is out of range
     --> test.toml:8:14
      |
    8 | min_blocks = 5
      |              ^ it must be from 6 to 1000000

    error: `target`: `0.5` has no unit
     --> test.toml:9:10
      |
    9 | target = '0.5'
      |          ^^^^^ write a percentage as `0.5%`

    error: `budget`: `sec` is not a unit of time
      --> test.toml:10:10
       |
    10 | budget = '2sec'
       |          ^^^^^^ did you mean `2s`? units are ns, us, ms, s, min and h

    error: `restarts` is out of range
      --> test.toml:11:12
       |
    11 | restarts = 101
       |            ^^^ it must be from 1 to 100
    "
    );
}

#[test]
fn pace_of_events_is_rejected_with_many_clients() {
    assert_snapshot!(with("[workload]\nclients = 4\n[schedule]\npace = 'events'"), @r#"
    error: `pace = "events"` needs one client
     --> test.toml:6:8
      |
    6 | pace = 'events'
      |        ^^^^^^^^ several clients finish at different times; use "time"
    "#);
}

#[test]
fn invalid_cpus_and_checks_are_reported() {
    assert_snapshot!(
        with("[cpus]\nsystem = '3-1'\ndbdyno = 0\n[checks]\nmax_error_share = '101%'"),
        @r#"
    error: invalid CPU list `3-1`
     --> test.toml:4:10
      |
    4 | system = '3-1'
      |          ^^^^^ use numbers and ascending ranges, such as "0-3,6"

    error: `dbdyno` must be a string, not an integer
     --> test.toml:5:10
      |
    5 | dbdyno = 0
      |          ^

    error: `max_error_share` is out of range
     --> test.toml:7:19
      |
    7 | max_error_share = '101%'
      |                   ^^^^^^ it must be from 0% to 100%
    "#
    );
}

#[test]
fn invalid_sqlite_settings_are_reported() {
    assert_snapshot!(
        with("[sqlite]\npage_size = 5000\ncache_size = '256MB'\njournal_mode = 'memory'\n\
              synchronous = 'on'\nmmap_size = 0"),
        @r"
    error: `page_size` must be a power of two
     --> test.toml:4:13
      |
    4 | page_size = 5000
      |             ^^^^ valid values: 512 B, 1 KiB, 2 KiB, 4 KiB … 64 KiB

    error: `cache_size`: `MB` is not a unit of memory
     --> test.toml:5:14
      |
    5 | cache_size = '256MB'
      |              ^^^^^^^ units are B, KiB, MiB, GiB and TiB

    error: unknown `journal_mode`: `memory`
     --> test.toml:6:16
      |
    6 | journal_mode = 'memory'
      |                ^^^^^^^^ valid are `wal`, `delete`, `truncate`, `persist`

    error: unknown `synchronous`: `on`
     --> test.toml:7:15
      |
    7 | synchronous = 'on'
      |               ^^^^ valid are `off`, `normal`, `full`

    error: unknown key `mmap_size` in [sqlite]
     --> test.toml:8:1
      |
    8 | mmap_size = 0
      | ^^^^^^^^^
    "
    );
}

#[test]
fn invalid_candidates_are_reported() {
    assert_snapshot!(
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
        error: unknown candidate `rel_02`
         --> test.toml:2:12
          |
        2 | baseline = 'rel_02'
          |            ^^^^^^^^ did you mean `rel_o2`?

        error: unknown variant `rel_02`
         --> test.toml:6:11
          |
        6 | variant = 'rel_02'
          |           ^^^^^^^^ did you mean `rel_o2`?

        error: duplicate candidate name `rel_o2`
         --> test.toml:8:8
          |
        8 | name = 'rel_o2'
          |        ^^^^^^^^ first used in line 4

        error: `fast` is not a compiler flag
          --> test.toml:11:17
           |
        11 | flags = ['-O3', 'fast']
           |                 ^^^^^^ flags start with `-`; join arguments: "--param=max-inline=9"

        error: unknown key `cache` in `candidate.sqlite`
          --> test.toml:12:12
           |
        12 | sqlite = { cache = '1MiB' }
           |            ^^^^^ did you mean `cache_size`?

        error: missing key `variant` in [[candidate]]
          --> test.toml:13:1
           |
        13 | [[candidate]]
           | ^^^^^^^^^^^^^ add one, such as `variant = "rel"`

        error: reserved name `control`
          --> test.toml:14:8
           |
        14 | name = 'control'
           |        ^^^^^^^^^ it is the name of the second instance of the baseline

        error: missing key `name` in [[candidate]]
          --> test.toml:16:1
           |
        16 | [[candidate]]
           | ^^^^^^^^^^^^^

        error: `compiler` is not the name of a compiler
          --> test.toml:19:12
           |
        19 | compiler = ''
           |            ^^ use `gcc`, `clang`, a versioned name or a path

        error: `injected_delay` is out of range
          --> test.toml:20:18
           |
        20 | injected_delay = '2000%'
           |                  ^^^^^^^ it must be from 0% to 1000%
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
    assert_snapshot!(shown("name = 'test'\nbaseline = 'a'\ncandidate = []"), @r"
    error: missing [[candidate]]
     --> test.toml:1:1
      |
    1 | name = 'test'
      | ^ add one with `name` and `system`
    ");
}

#[test]
fn single_table_of_a_candidate_is_reported_once() {
    assert_snapshot!(shown("name = 'x'\nbaseline = 'a'\n[candidate]\nname = 'a'"), @r"
    error: `candidate` is a single table
     --> test.toml:3:2
      |
    3 | [candidate]
      |  ^^^^^^^^^ write `[[candidate]]`
    ");
}
