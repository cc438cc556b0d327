//! Problems in an experiment's own microbenchmarks.

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
    assert_problems!(
        own("group = 'points'\nstages = ['pre', 'pots', 'post', 'write']\nranges = [0, 5, 5]\n\
             throughput = 'rows'"),
        @r"
    3:1 a microbenchmark needs at least one statement
    [[microbenchmark]]
    ^^^^^^^^^^^^^^^^^^ add [[microbenchmark.statements]] with `sql` and `rows` or `affects`
    5:9 unknown `group`: `points`
    group = 'points'
            ^^^^^^^^ did you mean `point-1`? If not, choose a less similar name
    6:18 unknown stage `pots`
    stages = ['pre', 'pots', 'post', 'write']
                     ^^^^^^ did you mean `post`?
    6:34 only `pre` can be combined with another stage
    stages = ['pre', 'pots', 'post', 'write']
                                     ^^^^^^^ two microbenchmarks would get the same name
    7:11 range size is out of range
    ranges = [0, 5, 5]
              ^ it must be from 1 to 1000000000000
    7:17 the same range twice
    ranges = [0, 5, 5]
                    ^
    8:14 unknown `throughput`: `rows`
    throughput = 'rows'
                 ^^^^^^ valid are `statements`, `million-rows-read`
    "
    );
}

#[test]
fn name_of_a_builtin_microbenchmark_is_rejected() {
    assert_problems!(
        with("[[microbenchmark]]\nname = 'scan'\ngroup = 'range-1'\n\
              statements = [{ sql = 'SELECT 1 FROM {table}', rows = 'any' }]"),
        @r"
    4:8 `scan` is a built-in microbenchmark
    name = 'scan'
           ^^^^^^ choose another name
    "
    );
}

#[test]
fn writes_are_rejected_in_stage_pre() {
    assert_problems!(
        own("group = 'writes'\nstages = ['pre']\n\
             statements = [{ sql = 'DELETE FROM {table}', affects = 'any' }]"),
        @r"
    6:11 a microbenchmark that writes cannot run in `pre`
    stages = ['pre']
              ^^^^^ `pre` is the stage before anything is written
    "
    );
}

#[test]
fn missing_statement_keys_are_reported() {
    assert_problems!(statement("sqll = 'SELECT 1'"), @r"
    6:1 missing key `sql` in [[microbenchmark.statements]]
    [[microbenchmark.statements]]
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    6:1 missing key `rows` or `affects`
    [[microbenchmark.statements]]
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ set the number of rows that it returns or changes
    7:1 unknown key `sqll` in [[microbenchmark.statements]]
    sqll = 'SELECT 1'
    ^^^^ did you mean `sql`?
    ");
}

#[test]
fn two_row_counts_are_rejected() {
    assert_problems!(statement("sql = 'SELECT 1 FROM {table}'\nrows = 1\naffects = 1"), @r"
    9:11 both `rows` and `affects`
    affects = 1
              ^ a query has `rows`, a statement that changes data `affects`
    ");
}

#[test]
fn row_count_of_the_wrong_kind_is_rejected() {
    assert_problems!(statement("sql = 'delete FROM {table}'\nrows = 1"), @r"
    8:8 a statement that changes data has no `rows`
    rows = 1
           ^ set `affects` instead
    ");
    let with = "WITH d AS (DELETE FROM {table} RETURNING id) SELECT id FROM d";
    assert_problems!(statement(&format!("sql = '/* x */ {with}'\nrows = 'any'")), @r"
    8:8 a statement that changes data has no `rows`
    rows = 'any'
           ^^^^^ set `affects` instead
    ");
    assert_problems!(statement("sql = 'SELECT 1 FROM {table}'\naffects = 1"), @r"
    8:11 a query has no `affects`
    affects = 1
              ^ set `rows` instead
    ");
    assert_problems!(statement("sql = 'SELECT 1 FROM {table}'\nrows = 'one'"), @r#"
    8:8 `one` is not a count
    rows = 'one'
           ^^^^^ write a number, "keys", "range", "any", or two of them as "0..1" (both ends count)
    "#);
    assert_problems!(statement("sql = 'SELECT 1 FROM {table}'\nrows = '2..1'"), @r#"
    8:8 `2..1` allows no count: 2 is greater than 1
    rows = '2..1'
           ^^^^^^ did you mean "1..2"?
    "#);
}

#[test]
fn undefined_and_unused_parameters_are_reported() {
    assert_problems!(
        statement(
            "sql = 'SELECT c FROM {table} WHERE id = :idd'\ndraw = { id = 'uniform' }\nrows = 1"
        ),
        @r"
    7:41 `:idd` is never drawn
    sql = 'SELECT c FROM {table} WHERE id = :idd'
                                            ^^^^ did you mean `:id`?
    8:10 `id` is drawn, but not used
    draw = { id = 'uniform' }
             ^^ nothing uses `:id` of this statement
    "
    );
}

#[test]
fn misplaced_lists_are_reported() {
    assert_problems!(
        statement(
            "sql = 'SELECT c FROM {table} WHERE id = :ids'\n\
             draw = { ids = 'list(3, uniform)' }\nrows = 'keys'"
        ),
        @r"
    7:41 `:ids` is a list of keys
    sql = 'SELECT c FROM {table} WHERE id = :ids'
                                            ^^^^ write `IN (:ids)`
    "
    );
}

#[test]
fn counts_without_matching_parameters_are_reported() {
    assert_problems!(
        statement(
            "sql = 'SELECT c FROM {table} WHERE id = :id'\ndraw = { id = 'uniform' }\n\
             rows = 'keys..range'"
        ),
        @r"
    9:8 `keys` needs a list among the parameters
    rows = 'keys..range'
           ^^^^^^^^^^^^^ it counts the different keys of a list
    9:8 `range` needs two numbers among the parameters
    rows = 'keys..range'
           ^^^^^^^^^^^^^ it counts the ids from the first to the second
    "
    );
}

#[test]
fn invalid_parameter_definitions_are_reported() {
    assert_problems!(
        statement(
            "sql = 'SELECT c FROM {table} WHERE id IN (:a, :b, :d, :e, :f, :g)'\nrows = 'any'\n\
             [microbenchmark.statements.draw]\n\
             a = 'unifrom'\nb = 'zipf(-1)'\nc = 'list(2, uniform)'\nd = 'c + 1'\ne = 'later + 1'\n\
             f = 'middle(0)'\ng = 7\nlater = 'fixed(x)'"
        ),
        @r#"
    7:63 `:g` is never drawn
    sql = 'SELECT c FROM {table} WHERE id IN (:a, :b, :d, :e, :f, :g)'
                                                                  ^^ add `draw = { g = "uniform" }`
    10:5 `unifrom` is not a way to draw
    a = 'unifrom'
        ^^^^^^^^^ draws are "uniform", "uniform(1..500)", "zipf(0.8)", "list(100, uniform)", "middle(100)", "fixed(1)", "c", "pad", or another parameter plus a number, "id + 1"
    11:5 `-1` is not an exponent
    b = 'zipf(-1)'
        ^^^^^^^^^^ it must be greater than 0 and at most 10
    13:5 `c` is not a number: nothing can be added to it
    d = 'c + 1'
        ^^^^^^^ only single keys and fixed numbers can
    14:5 `later` is not drawn before `e`
    e = 'later + 1'
        ^^^^^^^^^^^ parameters are drawn in the order in which they are written
    15:5 `0` is not the length of a list
    f = 'middle(0)'
        ^^^^^^^^^^^ it must be from 1 to 32766
    16:5 `g` must be a string, not an integer
    g = 7
        ^
    17:9 `fixed(x)` is not a way to draw
    later = 'fixed(x)'
            ^^^^^^^^^^ write an integer, as "fixed(1)"
    "#
    );
}

#[test]
fn invalid_placeholders_are_reported() {
    assert_problems!(
        statement("sql = 'SELECT {R} FROM {tabel} WHERE id < {limit}'\nrows = 'any'"),
        @r"
    7:15 `{R}` stands for a range size, and there is none
    sql = 'SELECT {R} FROM {tabel} WHERE id < {limit}'
                  ^^^ add `ranges = [100]` to the microbenchmark
    7:24 unknown placeholder `{tabel}`
    sql = 'SELECT {R} FROM {tabel} WHERE id < {limit}'
                           ^^^^^^^ did you mean `{table}`?
    7:43 unknown placeholder `{limit}`
    sql = 'SELECT {R} FROM {tabel} WHERE id < {limit}'
                                              ^^^^^^^ there are `{table}` and, with `ranges`, `{R}`; write `{ limit }` for a text of the statement
    "
    );
}

#[test]
fn same_table_is_rejected_in_the_first_statement() {
    assert_problems!(
        statement("sql = 'SELECT 1 FROM {table}'\nrows = 'any'\ntable = 'same'"),
        @r"
    9:9 the first statement of an event has no `same` table
    table = 'same'
            ^^^^^^ `same` is the table of the statement before
    "
    );
}

#[test]
fn problem_of_a_template_is_reported_once() {
    let text = "group = 'point-1'\nranges = [1, 2, 3]\nstages = ['pre', 'post']\n\
                statements = [{ sql = 'SELECT :x FROM {table}', rows = 'any' }]";
    assert_problems!(own(text), @r#"
    8:31 `:x` is never drawn
    statements = [{ sql = 'SELECT :x FROM {table}', rows = 'any' }]
                                  ^^ add `draw = { x = "uniform" }`
    "#);
}

#[test]
fn invalid_selected_microbenchmark_is_not_reported_as_unknown() {
    let shown = with("[workload]\nmicrobenchmarks = ['mine']\n[[microbenchmark]]\nname = 'mine'");
    assert!(!shown.contains("no microbenchmark is called"), "{shown}");
}
