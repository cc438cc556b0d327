//! How each kind of mistake is shown.

use dbdyno_spec::{Known, parse};
use insta::assert_snapshot;

const KNOWN: Known<'static> =
    Known { variants: &["rel_o2", "rel", "rel_native", "o1"], checks: &[] };

const HEAD: &str = "name = 'test'\nbaseline = 'a'\n";
const CANDIDATE: &str = "\n[[candidate]]\nname = 'a'\nsystem = 'sqlite'\nvariant = 'rel'\n";

/// The problems of a whole text.
fn shown(text: &str) -> String {
    parse("test.toml", text, &KNOWN).map_or_else(|problems| problems.to_string(), |_| "none".into())
}

/// The problems of an experiment that is valid but for these sections, which start in line 3.
fn with(sections: &str) -> String {
    shown(&format!("{HEAD}{sections}{CANDIDATE}"))
}

/// The problems of a microbenchmark that is valid but for these lines, which start in line 5.
fn own(lines: &str) -> String {
    with(&format!("[[microbenchmark]]\nname = 'mine'\n{lines}"))
}

/// The problems of a statement that starts in line 7.
fn statement(lines: &str) -> String {
    own(&format!("group = 'point-1'\n[[microbenchmark.statements]]\n{lines}"))
}

#[test]
fn nothing_at_all() {
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

    error: there is nothing to compare
     --> test.toml:1:1
      |
    1 |
      | ^ add [[candidate]] with `name` and `system`
    ");
}

#[test]
fn syntax() {
    assert_snapshot!(shown("name = 'test'\nbaseline = rel_o2\n"), @r"
    error: string values must be quoted, expected literal string
     --> test.toml:2:12
      |
    2 | baseline = rel_o2
      |            ^^^^^^
    ");
}

#[test]
fn unknown_keys() {
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
fn wrong_types() {
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

    error: `slice` must be a length of time such as "50ms", not an integer
     --> test.toml:6:18
      |
    6 | schedule.slice = 50
      |                  ^^
    "#
    );
}

#[test]
fn names() {
    assert_snapshot!(
        shown(&format!("name = 'a b'\nbaseline = 'a'{CANDIDATE}")),
        @r"
    error: `a b` cannot be a name
     --> test.toml:1:8
      |
    1 | name = 'a b'
      |        ^^^^^ names are made of letters, digits and - _ .
    "
    );
    assert_snapshot!(
        shown(&format!("name = '.a'\nbaseline = 'a'{CANDIDATE}")),
        @r"
    error: a name must start with a letter or digit
     --> test.toml:1:8
      |
    1 | name = '.a'
      |        ^^^^ names are made of letters, digits and - _ .
    "
    );
}

#[test]
fn workload() {
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
fn too_few_rows_for_the_ranges() {
    assert_snapshot!(with("[workload]\nrows = 10_000"), @r"
    error: 10000 rows are too few for read-only_range=10000
     --> test.toml:4:8
      |
    4 | rows = 10_000
      |        ^^^^^^ it reads 10000 keys at once: there must be more rows than that
    ");
}

#[test]
fn empty_selection() {
    assert_snapshot!(with("[workload]\nmicrobenchmarks = []"), @r"
    error: no microbenchmark is selected
     --> test.toml:4:19
      |
    4 | microbenchmarks = []
      |                   ^^ leave `microbenchmarks` out for all of them
    ");
}

#[test]
fn schedule() {
    assert_snapshot!(
        with("[schedule]\nslice = '50'\nwrite_slice = '2h'\npace = 'clock'\nwarmup_blocks = 0\n\
              min_blocks = 5\ntarget = '0.5'\nbudget = '2sec'\nrestarts = 101"),
        @r"
    error: `slice`: `50` has no unit
     --> test.toml:4:9
      |
    4 | slice = '50'
      |         ^^^^ write a length of time as `50ms`; units are ns, us, ms, s, min and h

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
      |          ^^^^^ write a share as `0.5%`

    error: `budget`: `sec` is not a unit of time
      --> test.toml:10:10
       |
    10 | budget = '2sec'
       |          ^^^^^^ units are ns, us, ms, s, min and h

    error: `restarts` is out of range
      --> test.toml:11:12
       |
    11 | restarts = 101
       |            ^^^ it must be from 1 to 100
    "
    );
}

#[test]
fn pace_of_events_with_many_clients() {
    assert_snapshot!(with("[workload]\nclients = 4\n[schedule]\npace = 'events'"), @r#"
    error: `pace = "events"` needs one client
     --> test.toml:6:8
      |
    6 | pace = 'events'
      |        ^^^^^^^^ with more, they finish at different times; use "time"
    "#);
}

#[test]
fn cpus_and_checks() {
    assert_snapshot!(
        with("[cpus]\nsystem = '3-1'\ndbdyno = 0\n[checks]\nmax_error_share = '101%'"),
        @r#"
    error: `3-1` is not a list of CPUs
     --> test.toml:4:10
      |
    4 | system = '3-1'
      |          ^^^^^ write numbers and ranges from low to high, as "0-3,6"

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
fn sqlite() {
    assert_snapshot!(
        with("[sqlite]\npage_size = 5000\ncache_size = '256MB'\njournal_mode = 'memory'\n\
              synchronous = 'on'\nmmap_size = 0"),
        @r"
    error: `page_size` is not a power of two
     --> test.toml:4:13
      |
    4 | page_size = 5000
      |             ^^^^ it must be 512 B, 1 KiB, 2 KiB, 4 KiB … 64 KiB

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
fn candidates() {
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
        error: no candidate is called `rel_02`
         --> test.toml:2:12
          |
        2 | baseline = 'rel_02'
          |            ^^^^^^^^ did you mean `rel_o2`?

        error: unknown variant `rel_02`
         --> test.toml:6:11
          |
        6 | variant = 'rel_02'
          |           ^^^^^^^^ did you mean `rel_o2`?

        error: two candidates are called `rel_o2`
         --> test.toml:8:8
          |
        8 | name = 'rel_o2'
          |        ^^^^^^^^ the first is in line 4

        error: `fast` is not a compiler flag
          --> test.toml:11:17
           |
        11 | flags = ['-O3', 'fast']
           |                 ^^^^^^ flags start with `-`, and arguments are joined: "--param=max-inline=9"

        error: unknown key `cache` in `candidate.sqlite`
          --> test.toml:12:12
           |
        12 | sqlite = { cache = '1MiB' }
           |            ^^^^^

        error: missing key `variant` in [[candidate]]
          --> test.toml:13:1
           |
        13 | [[candidate]]
           | ^^^^^^^^^^^^^

        error: `control` cannot be the name of a candidate
          --> test.toml:14:8
           |
        14 | name = 'control'
           |        ^^^^^^^^^ it is what the second instance of the baseline is called

        error: missing key `name` in [[candidate]]
          --> test.toml:16:1
           |
        16 | [[candidate]]
           | ^^^^^^^^^^^^^

        error: `compiler` names no compiler
          --> test.toml:19:12
           |
        19 | compiler = ''
           |            ^^ write `gcc`, `clang`, a versioned name or a path

        error: `injected_delay` is out of range
          --> test.toml:20:18
           |
        20 | injected_delay = '2000%'
           |                  ^^^^^^^ it must be from 0% to 1000%
        "#
    );
}

#[test]
fn no_candidates() {
    assert_snapshot!(shown("name = 'test'\nbaseline = 'a'\ncandidate = []"), @r"
    error: there is nothing to compare
     --> test.toml:1:1
      |
    1 | name = 'test'
      | ^ add [[candidate]] with `name` and `system`
    ");
}

#[test]
fn own_microbenchmark() {
    assert_snapshot!(
        own("group = 'points'\nstages = ['pre', 'pots', 'post', 'write']\nranges = [0, 5, 5]\n\
             throughput = 'rows'"),
        @r"
    error: a microbenchmark needs at least one statement
     --> test.toml:3:1
      |
    3 | [[microbenchmark]]
      | ^^^^^^^^^^^^^^^^^^ add [[microbenchmark.statements]] with `sql` and `rows` or `affects`

    error: unknown `group`: `points`
     --> test.toml:5:9
      |
    5 | group = 'points'
      |         ^^^^^^^^ did you mean `point-1`?

    error: unknown stage `pots`
     --> test.toml:6:18
      |
    6 | stages = ['pre', 'pots', 'post', 'write']
      |                  ^^^^^^ did you mean `post`?

    error: only `pre` can be combined with another stage
     --> test.toml:6:34
      |
    6 | stages = ['pre', 'pots', 'post', 'write']
      |                                  ^^^^^^^ two microbenchmarks would get the same name

    error: range size is out of range
     --> test.toml:7:11
      |
    7 | ranges = [0, 5, 5]
      |           ^ it must be from 1 to 1000000000000

    error: the same range twice
     --> test.toml:7:17
      |
    7 | ranges = [0, 5, 5]
      |                 ^

    error: unknown `throughput`: `rows`
     --> test.toml:8:14
      |
    8 | throughput = 'rows'
      |              ^^^^^^ valid are `statements`, `million-rows-read`
    "
    );
}

#[test]
fn own_with_a_builtin_name() {
    assert_snapshot!(
        with("[[microbenchmark]]\nname = 'scan'\ngroup = 'range-1'\n\
              statements = [{ sql = 'SELECT 1 FROM {table}', rows = 'any' }]"),
        @r"
    error: `scan` is a built-in microbenchmark
     --> test.toml:4:8
      |
    4 | name = 'scan'
      |        ^^^^^^ choose another name
    "
    );
}

#[test]
fn own_that_writes_before_the_writes() {
    assert_snapshot!(
        own("group = 'writes'\nstages = ['pre']\n\
             statements = [{ sql = 'DELETE FROM {table}', affects = 'any' }]"),
        @r"
    error: a microbenchmark that writes cannot run in `pre`
     --> test.toml:6:11
      |
    6 | stages = ['pre']
      |           ^^^^^ `pre` is the stage before anything is written
    "
    );
}

#[test]
fn statement_without_its_keys() {
    assert_snapshot!(statement("sqll = 'SELECT 1'"), @r"
    error: missing key `sql` in [[microbenchmark.statements]]
     --> test.toml:6:1
      |
    6 | [[microbenchmark.statements]]
      | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error: missing key `rows` or `affects`
     --> test.toml:6:1
      |
    6 | [[microbenchmark.statements]]
      | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ say how many rows must come back or change

    error: unknown key `sqll` in [[microbenchmark.statements]]
     --> test.toml:7:1
      |
    7 | sqll = 'SELECT 1'
      | ^^^^ did you mean `sql`?
    ");
}

#[test]
fn statement_with_both_counts() {
    assert_snapshot!(statement("sql = 'SELECT 1 FROM {table}'\nrows = 1\naffects = 1"), @r"
    error: both `rows` and `affects`
     --> test.toml:9:11
      |
    9 | affects = 1
      |           ^ a query has `rows`, a statement that changes data `affects`
    ");
}

#[test]
fn statement_with_the_wrong_count() {
    assert_snapshot!(statement("sql = 'delete FROM {table}'\nrows = 1"), @r"
    error: a statement that changes data has no `rows`
     --> test.toml:8:8
      |
    8 | rows = 1
      |        ^ say what it `affects`
    ");
    assert_snapshot!(statement("sql = 'SELECT 1 FROM {table}'\naffects = 1"), @r"
    error: a query affects nothing
     --> test.toml:8:11
      |
    8 | affects = 1
      |           ^ say how many `rows` it returns
    ");
    assert_snapshot!(statement("sql = 'SELECT 1 FROM {table}'\nrows = 'one'"), @r#"
    error: `one` is not a count
     --> test.toml:8:8
      |
    8 | rows = 'one'
      |        ^^^^^ write a number, "keys", "range", "any", or two of them as "0..1" (both ends count)
    "#);
    assert_snapshot!(statement("sql = 'SELECT 1 FROM {table}'\nrows = '2..1'"), @r#"
    error: `2..1` allows no count: 2 is greater than 1
     --> test.toml:8:8
      |
    8 | rows = '2..1'
      |        ^^^^^^ did you mean "1..2"?
    "#);
}

#[test]
fn parameters_that_are_not_drawn_or_drawn_in_vain() {
    assert_snapshot!(
        statement(
            "sql = 'SELECT c FROM {table} WHERE id = :idd'\ndraw = { id = 'uniform' }\nrows = 1"
        ),
        @r"
    error: `:idd` is never drawn
     --> test.toml:7:41
      |
    7 | sql = 'SELECT c FROM {table} WHERE id = :idd'
      |                                         ^^^^ did you mean `:id`?

    error: `id` is drawn in vain
     --> test.toml:8:10
      |
    8 | draw = { id = 'uniform' }
      |          ^^ nothing uses `:id` of this statement
    "
    );
}

#[test]
fn lists_in_the_wrong_place() {
    assert_snapshot!(
        statement(
            "sql = 'SELECT c FROM {table} WHERE id = :ids'\n\
             draw = { ids = 'list(3, uniform)' }\nrows = 'keys'"
        ),
        @r"
    error: `:ids` is a list of keys
     --> test.toml:7:41
      |
    7 | sql = 'SELECT c FROM {table} WHERE id = :ids'
      |                                         ^^^^ write `IN (:ids)`
    "
    );
}

#[test]
fn counts_without_their_parameters() {
    assert_snapshot!(
        statement(
            "sql = 'SELECT c FROM {table} WHERE id = :id'\ndraw = { id = 'uniform' }\n\
             rows = 'keys..range'"
        ),
        @r"
    error: `keys` needs a list among the parameters
     --> test.toml:9:8
      |
    9 | rows = 'keys..range'
      |        ^^^^^^^^^^^^^ it counts the different keys of a list

    error: `range` needs two numbers among the parameters
     --> test.toml:9:8
      |
    9 | rows = 'keys..range'
      |        ^^^^^^^^^^^^^ it counts the ids from the first to the second
    "
    );
}

#[test]
fn draws() {
    assert_snapshot!(
        statement(
            "sql = 'SELECT c FROM {table} WHERE id IN (:a, :b, :d, :e, :f, :g)'\nrows = 'any'\n\
             [microbenchmark.statements.draw]\n\
             a = 'unifrom'\nb = 'zipf(-1)'\nc = 'list(2, uniform)'\nd = 'c + 1'\ne = 'later + 1'\n\
             f = 'middle(0)'\ng = 7\nlater = 'fixed(x)'"
        ),
        @r#"
    error: `:g` is never drawn
     --> test.toml:7:63
      |
    7 | sql = 'SELECT c FROM {table} WHERE id IN (:a, :b, :d, :e, :f, :g)'
      |                                                               ^^ add `draw = { g = "uniform" }`

    error: `unifrom` is not a way to draw
      --> test.toml:10:5
       |
    10 | a = 'unifrom'
       |     ^^^^^^^^^ draws are "uniform", "zipf(0.8)", "list(100, uniform)", "middle(100)", "fixed(1)", "c", "pad", or another parameter plus a number, "id + 1"

    error: `-1` is not an exponent
      --> test.toml:11:5
       |
    11 | b = 'zipf(-1)'
       |     ^^^^^^^^^^ it must be greater than 0 and at most 10

    error: `c` is not a number: nothing can be added to it
      --> test.toml:13:5
       |
    13 | d = 'c + 1'
       |     ^^^^^^^ only single keys and fixed numbers can

    error: `later` is not drawn before `e`
      --> test.toml:14:5
       |
    14 | e = 'later + 1'
       |     ^^^^^^^^^^^ draws happen in the order in which they stand

    error: `0` is not the length of a list
      --> test.toml:15:5
       |
    15 | f = 'middle(0)'
       |     ^^^^^^^^^^^ it must be from 1 to 32766

    error: `g` must be a string, not an integer
      --> test.toml:16:5
       |
    16 | g = 7
       |     ^

    error: `fixed(x)` is not a way to draw
      --> test.toml:17:9
       |
    17 | later = 'fixed(x)'
       |         ^^^^^^^^^^ write an integer, as "fixed(1)"
    "#
    );
}

#[test]
fn placeholders() {
    assert_snapshot!(
        statement("sql = 'SELECT {R} FROM {tabel} WHERE id < {limit}'\nrows = 'any'"),
        @r"
    error: the statement names no `{table}`
     --> test.toml:7:7
      |
    7 | sql = 'SELECT {R} FROM {tabel} WHERE id < {limit}'
      |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ it stands where the table's name goes

    error: `{R}` stands for a range size, and there is none
     --> test.toml:7:15
      |
    7 | sql = 'SELECT {R} FROM {tabel} WHERE id < {limit}'
      |               ^^^ add `ranges = [100]` to the microbenchmark

    error: unknown placeholder `{tabel}`
     --> test.toml:7:24
      |
    7 | sql = 'SELECT {R} FROM {tabel} WHERE id < {limit}'
      |                        ^^^^^^^ did you mean `{table}`?

    error: unknown placeholder `{limit}`
     --> test.toml:7:43
      |
    7 | sql = 'SELECT {R} FROM {tabel} WHERE id < {limit}'
      |                                           ^^^^^^^ there are `{table}` and, with `ranges`, `{R}`
    "
    );
}

#[test]
fn the_first_statement_has_no_same_table() {
    assert_snapshot!(
        statement("sql = 'SELECT 1 FROM {table}'\nrows = 'any'\ntable = 'same'"),
        @r"
    error: the first statement of an event has no `same` table
     --> test.toml:9:9
      |
    9 | table = 'same'
      |         ^^^^^^ `same` is the table of the statement before
    "
    );
}

#[test]
fn a_template_repeats_no_problem() {
    let text = "group = 'point-1'\nranges = [1, 2, 3]\nstages = ['pre', 'post']\n\
                statements = [{ sql = 'SELECT :x FROM {table}', rows = 'any' }]";
    assert_snapshot!(own(text), @r#"
    error: `:x` is never drawn
     --> test.toml:8:31
      |
    8 | statements = [{ sql = 'SELECT :x FROM {table}', rows = 'any' }]
      |                               ^^ add `draw = { x = "uniform" }`
    "#);
}

#[test]
fn a_selected_microbenchmark_with_problems_is_not_called_unknown() {
    let shown = with("[workload]\nmicrobenchmarks = ['mine']\n[[microbenchmark]]\nname = 'mine'");
    assert!(!shown.contains("no microbenchmark is called"), "{shown}");
}
