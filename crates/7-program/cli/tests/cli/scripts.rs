//! sysbench scripts.

use rusqlite::Connection;

use crate::common::{INNODB, POSTGRES, TestDir, call, finish, read_csv};

const SCRIPT: &str = "
sysbench.cmdline.options = { rows = {'Rows', 100}, fast = {'Fast', false} }
function thread_init() con = sysbench.sql.driver():connect() end
function event()
   con:query(string.format('SELECT %d FROM t', sysbench.rand.uniform(1, sysbench.opt.rows)))
end";

#[test]
fn statements_of_a_script_are_listed() {
    let test = TestDir::new();
    let script = test.path().join("my.lua");
    std::fs::write(&script, SCRIPT).unwrap();
    let script = script.to_str().unwrap();
    let listed = call(["list", "script", script, "--events", "3", "--option", "rows=1"]);
    listed.assert_code(0);
    assert_eq!(listed.out, "SELECT 1 FROM t\nSELECT 1 FROM t\nSELECT 1 FROM t\n");
    let seeded = |seed| call(["list", "script", script, "--events", "20", "--seed", seed]).out;
    assert_eq!(seeded("1"), seeded("1"));
    assert_ne!(seeded("1"), seeded("2"));
}

#[test]
fn invalid_scripts_and_options_are_named() {
    let test = TestDir::new();
    let write = |name: &str, text: &str| {
        let path = test.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let script = write("my.lua", SCRIPT);
    let missing = write("missing.lua", "\nrequire('common')\n");
    let broken = write("broken.lua", "\n\nfunction event( end\n");
    let asks = write(
        "asks.lua",
        "function thread_init() con = sysbench.sql.driver():connect()\n\
         size = con:query('SELECT 1'):fetch_row()[1] end\nfunction event() end",
    );
    for (arguments, expected) in [
        (vec!["list", "script", &script, "--option", "rosw=2"], "did you mean `rows`?"),
        (vec!["list", "script", &script, "--option", "threads=2"], "set `clients` in [workload]"),
        (vec!["list", "script", &script, "--option", "rows=many"], "`many` is not a number"),
        (vec!["list", "script", &script, "--option", "rows"], "write NAME=VALUE"),
        (vec!["list", "script", &missing], "missing.lua:2: module `common` was not found"),
        (vec!["list", "script", &broken], "broken.lua:3: "),
        (vec!["list", "script", &asks], "nothing is executed here"),
        (vec!["list", "script", "no-such.lua"], "no-such.lua"),
        (vec!["list", "script"], "name one script"),
    ] {
        call(&arguments).assert_code(2).assert_prints(expected);
    }
}

#[test]
fn script_outside_of_a_run_has_limits_and_prints_no_commands() {
    let test = TestDir::new();
    let list = |text: &str| {
        let path = test.path().join("my.lua");
        std::fs::write(&path, text).unwrap();
        call(["list", "script", path.to_str().unwrap()])
    };
    let hungry =
        list("local all = {} while true do all[#all + 1] = string.rep('x', 1e6 + #all) end");
    hungry.assert_code(2).assert_prints("not enough memory");
    let connects = "function thread_init() con = sysbench.sql.driver():connect() end\n";
    let endless = list(&format!(
        "{connects}function event() while true do con:query(string.rep('x', 1e6)) end end"
    ));
    endless.assert_code(2).assert_prints("more than 64 MiB");
    // GitHub Actions would execute it.
    let command = list(&format!("{connects}function event() con:query('::error title=x::y') end"));
    command.assert_code(0).assert_prints(": :error title=x::y");
    assert!(!command.out.contains("::error"), "{}", command.out);
}

#[test]
fn only_a_run_executes_what_a_script_contains() {
    let test = TestDir::new();
    let planted = test.path().join("planted");
    let evil = test.path().join("evil.lua");
    let text = format!(
        "pcall(function() io.open('{0}', 'w'):close() end)
         pcall(function() ffi.cdef('int system(const char *);') ffi.C.system('touch {0}') end)
         local hidden = pcall(debug.getupvalue, os.execute, 1)
         os.execute('touch {0}')\n{SCRIPT}",
        planted.display()
    );
    std::fs::write(&evil, text).unwrap();
    let experiment = test.path().join("e.toml");
    let text = "name = \"evil\"\nbaseline = \"a\"\n[workload]\nmicrobenchmarks = [\"mine\"]\n\
                [[microbenchmark]]\nname = \"mine\"\nscript = \"evil.lua\"\n\
                [[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n";
    std::fs::write(&experiment, text).unwrap();
    let (evil, experiment) = (evil.to_str().unwrap(), experiment.to_str().unwrap());
    let reason = "os.execute() is not possible here: the script needs a run";
    for (arguments, expected) in [
        (vec!["list", "script", evil], reason),
        (vec!["check", "--file-only", experiment], reason),
        (vec!["check", experiment], reason),
        (vec!["compare", "mariadb", "--script", evil, "--for", "zz"], "zz"),
    ] {
        call(&arguments).assert_code(2).assert_prints(expected);
        assert!(!planted.exists(), "{arguments:?}");
    }
}

/// The script of a bank whose clients need answers, restart events, and use every way to send SQL.
pub const BANK: &str = r#"
sysbench.cmdline.options = { accounts = {'Accounts', 100} }
function prepare()
   local con = sysbench.sql.driver():connect()
   con:query('CREATE TABLE accounts (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL, note VARCHAR(40))')
   con:query('CREATE TABLE moves (id BIGINT PRIMARY KEY, amount INTEGER NOT NULL)')
   con:bulk_insert_init('INSERT INTO accounts VALUES')
   for i = 1, sysbench.opt.accounts do
      con:bulk_insert_next(string.format("(%d, %d, '%s')", i, i * 10, sysbench.rand.string('@@@')))
   end
   con:bulk_insert_done()
end
ffi.cdef('int usleep(unsigned int);')
function thread_init()
   con = sysbench.sql.driver():connect()
   update = con:prepare('UPDATE accounts SET amount = amount + ?, note = ? WHERE id = ?')
   local opt = sysbench.opt
   if opt.db_driver == 'mysql' then
      assert(con:query_row('SELECT DATABASE()') == opt.mysql_db)
      assert(con:query_row("SELECT _binary '\255\200'") == '\255\200')
      con:query("PREPARE twice FROM 'SELECT 2 * 4'")
      assert(con:query('EXECUTE twice'):fetch_row()[1] == '8')
   else
      assert(con:query_row('SELECT current_database()') == opt.pgsql_db)
      con:query('PREPARE twice (int) AS SELECT 2 * $1')
      assert(con:query('EXECUTE twice(4)'):fetch_row()[1] == '8')
      assert(con:query_row("INSERT INTO accounts VALUES (-1 - " .. sysbench.tid .. ", 1, '') RETURNING amount") == '1')
      assert(con:query('DELETE FROM accounts WHERE id = -1 - ' .. sysbench.tid) == nil)
   end
   by, note, id = update:bind_create(sysbench.sql.type.INT),
      update:bind_create(sysbench.sql.type.VARCHAR, 40), update:bind_create(sysbench.sql.type.BIGINT)
   update:bind_param(by, note, id)
   local kind = sysbench.sql.type
   for sql, values in pairs({
      ['SELECT id FROM accounts WHERE id < ? AND id > ? AND id = ? + ? AND note = CONCAT(?, ?)'] = {
         {kind.INT, 3e9}, {kind.DOUBLE, 0.5}, {kind.INT, 1}, {kind.INT, 0}, {kind.CHAR, 'a'}, {kind.VARCHAR, 'b'},
      },
      ['SELECT id FROM accounts WHERE note = ?'] = { {kind.BIGINT, 7} },
   }) do
      local typed, bound = con:prepare(sql), {}
      for i, value in ipairs(values) do
         bound[i] = typed:bind_create(value[1], 9)
         bound[i]:set(value[2])
      end
      typed:bind_param(unpack(bound))
      typed:execute()
      typed:close()
   end
end
function event()
   local from = sysbench.rand.uniform(1, sysbench.opt.accounts)
   assert(con:query('BEGIN'))
   local amount, text = con:query_row('/* $1 ? */ SELECT amount, note FROM accounts WHERE id = ' .. from)
   assert(tonumber(amount) ~= nil and #text >= 3, 'no such account')
   by:set(tonumber(amount) % 3 - 1)
   note:set_rand_str('@@@@')
   id:set(from)
   assert(update:execute())
   ffi.C.usleep(100)
   con:query(string.format('INSERT INTO moves VALUES (%d, %s)', sysbench.rand.unique(), amount))
   con:query('COMMIT')
end
"#;

/// A script whose `prepare` reads an answer. Its rows cannot be inserted twice.
const READS: &str = r#"
sysbench.cmdline.options = { range = {'Rows of an event', 1} }
function prepare()
   local con = sysbench.sql.driver():connect()
   assert(sysbench.opt.range == 1)
   local rs = con:query("SELECT table_name FROM information_schema.tables WHERE table_name = 'parts'")
   if rs.nrows == 0 then con:query('CREATE TABLE parts (id INTEGER PRIMARY KEY)') end
   con:query('INSERT INTO parts VALUES (1), (2), (3)')
end
function thread_init() con = sysbench.sql.driver():connect() end
function event() con:query('SELECT id FROM parts WHERE id <= ' .. sysbench.opt.range) end
"#;

/// A script that names its schema.
const QUALIFIED: &str = r#"
function prepare()
   local con = sysbench.sql.driver():connect()
   con:query('CREATE TABLE shop.q (id INTEGER PRIMARY KEY)')
   con:query('INSERT INTO shop.q VALUES (1)')
end
function thread_init() con = sysbench.sql.driver():connect() end
function event() con:query('SELECT id FROM shop.q WHERE id = 1') end
"#;

pub fn experiment(clients: &str, microbenchmarks: &str, candidates: &[(&str, &str)]) -> String {
    let mut text = format!(
        "name = \"scripts\"\nbaseline = \"{}\"\ncontrol = false\n\n[workload]\nrows = 1000\nclients = {clients}\n\
         microbenchmarks = [\"own\"]\n\n\
         [schedule]\nslice = \"5ms\"\nwrite_slice = \"5ms\"\nmin_blocks = 6\n\
         restarts = 1\nbudget = \"50ms\"\n\n[cpus]\nprevent_idle = false\n\n{microbenchmarks}\n",
        candidates[0].0
    );
    for (name, lines) in candidates {
        text.push_str(&format!("[[candidate]]\nname = \"{name}\"\n{lines}\n\n"));
    }
    text
}

/// Scripts of one family share data; others have schemas of their own.
#[test]
fn scripts_run_on_several_systems_with_several_clients() {
    let test = TestDir::new();
    for (name, text) in [("bank", BANK), ("reads", READS), ("qualified", QUALIFIED)] {
        std::fs::write(test.path().join(format!("{name}.lua")), text).unwrap();
    }
    let microbenchmarks = r#"
[[microbenchmark]]
name = "bank"
script = "bank.lua"
options = { accounts = 50 }

[[microbenchmark]]
name = "transactions"
script = "oltp_read_write.lua"
sysbench = "1.0"
options = { tables = 2, table-size = 300, rand-type = "uniform" }

[[microbenchmark]]
name = "points"
script = "oltp_point_select.lua"
options = { tables = 2, table-size = 300 }

[[microbenchmark]]
name = "reads-1"
script = "reads.lua"

[[microbenchmark]]
name = "reads-2"
script = "reads.lua"
run_options = { range = 2 }

[[microbenchmark]]
name = "qualified"
script = "qualified.lua"
schema = "shop"
"#;
    let text = experiment("3", microbenchmarks, &[INNODB, POSTGRES]);
    let out = test.out();
    finish(test.text_command(&text, &out, &[])).assert_code(0).assert_prints(
        "running prepare of bank.lua, oltp_read_write.lua, reads.lua, qualified.lua",
    );
    let relative = read_csv(&out.join("relative.csv"));
    assert_eq!(relative.len(), 1 + 6, "{relative:?}");
    assert!(relative[1..].iter().all(|row| row[13] == "0"), "{relative:?}");
    let run = Connection::open(out.join("run.sqlite")).unwrap();
    let count = |sql: &str| run.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT COUNT(*) FROM failure"), 0);
    assert_eq!(count("SELECT COUNT(*) FROM slice WHERE errors > 0"), 0);
    assert!(count("SELECT SUM(rows) FROM slice") > 0);
    // Events have options of their own.
    let of_reads = "SELECT SUM(slice.rows) / SUM(statements) FROM slice \
                    JOIN microbenchmark ON microbenchmark.id = microbenchmark WHERE name LIKE 'reads-2%'";
    assert_eq!(count(of_reads), 2);
}

/// Values that differ between equal servers: by a function that is known, and by one that is not.
#[test]
fn answers_that_differ_by_nature_are_compared_by_their_numbers_of_rows() {
    let test = TestDir::new();
    let mut microbenchmarks = String::new();
    let time = "MAX(time_ms) FROM information_schema.processlist";
    for (name, value) in [("random", "RAND()"), ("time", time)] {
        let script = format!(
            "function prepare() end\n\
             function thread_init() con = sysbench.sql.driver():connect() end\n\
             function event() con:query('SELECT {value}') end\n"
        );
        std::fs::write(test.path().join(format!("{name}.lua")), script).unwrap();
        microbenchmarks
            .push_str(&format!("[[microbenchmark]]\nname = \"{name}\"\nscript = \"{name}.lua\"\n"));
    }
    let text =
        experiment("1", &microbenchmarks, &[INNODB]).replace("control = false", "control = true");
    let out = test.out();
    let finished = finish(test.text_command(&text, &out, &[]));
    finished.assert_code(0);
    let printed = finished.all().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        printed
            .contains("answers of random: only numbers of rows are compared: its SQL has RAND()"),
        "{printed}"
    );
    assert!(
        printed.contains("answers of time: the baseline and the control, which are equal,"),
        "{printed}"
    );
}

#[test]
fn failing_script_fails_the_run_with_its_line_and_statement() {
    let test = TestDir::new();
    let script = "function prepare() sysbench.sql.driver():connect():query('CREATE TABLE a (i INT)') end\n\
                  function thread_init() con = sysbench.sql.driver():connect() end\n\
                  function event()\n  con:query('SELECT x FROM a')\nend\n";
    std::fs::write(test.path().join("bad.lua"), script).unwrap();
    let microbenchmarks = "[[microbenchmark]]\nname = \"bad\"\nscript = \"bad.lua\"\n";
    let text = experiment("1", microbenchmarks, &[POSTGRES]);
    finish(test.text_command(&text, &test.out(), &[]))
        .assert_code(1)
        .assert_prints("bad.lua:4: column \"x\" does not exist")
        .assert_prints("in: SELECT x FROM a");
}
