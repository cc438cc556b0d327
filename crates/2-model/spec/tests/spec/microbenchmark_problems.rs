//! Problems in an experiment's own microbenchmarks.

use insta::assert_snapshot;

use super::problems::with;

/// The problems of an otherwise valid microbenchmark with these lines, which start in line 5.
fn own(lines: &str) -> String {
    with(&format!("[[microbenchmark]]\nname = 'mine'\n{lines}"))
}

/// The problems of a statement that starts in line 7.
fn statement(lines: &str) -> String {
    own(&format!("group = 'point-1'\n[[microbenchmark.statements]]\n{lines}"))
}

#[test]
fn invalid_own_microbenchmarks_are_reported() {
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
      |         ^^^^^^^^ did you mean `point-1`? If not, choose a less similar name

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
fn name_of_a_builtin_microbenchmark_is_rejected() {
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
fn writes_are_rejected_in_stage_pre() {
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
fn missing_statement_keys_are_reported() {
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
fn two_row_counts_are_rejected() {
    assert_snapshot!(statement("sql = 'SELECT 1 FROM {table}'\nrows = 1\naffects = 1"), @r"
    error: both `rows` and `affects`
     --> test.toml:9:11
      |
    9 | affects = 1
      |           ^ a query has `rows`, a statement that changes data `affects`
    ");
}

#[test]
fn row_count_of_the_wrong_kind_is_rejected() {
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
fn undefined_and_unused_parameters_are_reported() {
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
fn misplaced_lists_are_reported() {
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
fn counts_without_matching_parameters_are_reported() {
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
fn invalid_parameter_definitions_are_reported() {
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
       |     ^^^^^^^^^ draws are "uniform", "uniform(1..500)", "zipf(0.8)", "list(100, uniform)", "middle(100)", "fixed(1)", "c", "pad", or another parameter plus a number, "id + 1"

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
fn invalid_placeholders_are_reported() {
    assert_snapshot!(
        statement("sql = 'SELECT {R} FROM {tabel} WHERE id < {limit}'\nrows = 'any'"),
        @r"
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
fn same_table_is_rejected_in_the_first_statement() {
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
fn problem_of_a_template_is_reported_once() {
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
fn invalid_selected_microbenchmark_is_not_reported_as_unknown() {
    let shown = with("[workload]\nmicrobenchmarks = ['mine']\n[[microbenchmark]]\nname = 'mine'");
    assert!(!shown.contains("no microbenchmark is called"), "{shown}");
}
