//! Runs of sysbench scripts: restarted events, failures, resumption, MySQL's own program.

use crate::common::{
    Background, INNODB, POSTGRES, Slice, Stored, TestDir, call, candidates_differ, finish,
    home_of_servers, is_gone, processes_in, read_csv, resume, slices_of_live_run, wait_until,
};
use crate::scripts::{BANK, experiment};
use crate::servers::count;

/// Two clients update two rows in opposite orders.
const PAIRS: &str = r#"
local tries, done, hooks = 0, 0, 0
function prepare()
   local con = sysbench.sql.driver():connect()
   con:query('CREATE TABLE pairs (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)')
   con:query('INSERT INTO pairs VALUES (1, 0), (2, 0)')
end
function thread_init() con = sysbench.sql.driver():connect() end
function sysbench.hooks.before_restart_event(e)
   assert(e.sql_errno == 1213 and e.sql_state == '40001' or e.sql_state == '40P01', 'no deadlock')
   hooks = hooks + 1
end
function event(tid)
   tries = tries + 1
   assert(tries == done + hooks + 1, 'the hook is not called once per restart')
   con:query('BEGIN')
   con:query('UPDATE pairs SET n = n + 1 WHERE id = ' .. tid % 2 + 1)
   con:query('UPDATE pairs SET n = n + 1 WHERE id = ' .. 2 - tid % 2)
   con:query('COMMIT')
   done = done + 1
end
"#;

#[test]
fn event_that_ends_in_a_deadlock_is_restarted_and_counted() {
    let test = TestDir::new();
    std::fs::write(test.path().join("pairs.lua"), PAIRS).unwrap();
    let microbenchmarks = "[[microbenchmark]]\nname = \"pairs\"\nscript = \"pairs.lua\"\n";
    let postgres = format!("{}\n[candidate.configuration]\ndeadlock_timeout = \"2ms\"", POSTGRES.1);
    let text = experiment("2", microbenchmarks, &[INNODB, ("postgres", &postgres)]);
    let out = test.out();
    finish(test.text_command(&text, &out, &[])).assert_code(0);
    for candidate in 0..2 {
        let restarts = format!("SELECT SUM(busy_retries) FROM slice WHERE candidate = {candidate}");
        assert!(count(&out, &restarts) > 0, "candidate {candidate}");
    }
    assert_eq!(count(&out, "SELECT SUM(errors) FROM slice"), 0);
}

/// Orders in several tables, made in parallel, with every way to send statements and with real times.
const ORDERS: &str = r#"
ffi.cdef[[ void sb_counter_inc(int, sb_counter_type); ]]
sysbench.cmdline.options = {
   items = {'Items', 150}, pgsql_schema = {'Schema of PostgreSQL', 'public'},
}
local TABLES = 2
local function connect()
   local driver = sysbench.sql.driver()
   local con = driver:connect()
   if driver:name() == 'mysql' then con:query('SET autocommit = 0')
   else con:query('SET search_path TO ' .. sysbench.opt.pgsql_schema) end
   return con, driver:name() == 'mysql' and 'DATETIME' or 'TIMESTAMP'
end
local function create()
   local con, time = connect()
   local opt, tid = sysbench.opt, sysbench.tid
   for i = tid % opt.threads + 1, TABLES, opt.threads do
      con:query('CREATE TABLE items' .. i .. [[ (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL,
         name VARCHAR(30) NOT NULL, note VARCHAR(10))]])
      con:query('CREATE TABLE orders' .. i .. ' (id BIGINT PRIMARY KEY, item INTEGER NOT NULL, placed '
         .. time .. ', day VARCHAR(20) NOT NULL)')
      con:query('CREATE INDEX orders_item' .. i .. ' ON orders' .. i .. ' (item)')
   end
   os.execute('sleep 30')
   for i = 1, TABLES do
      con:bulk_insert_init('INSERT INTO items' .. i .. ' (id, stock, name) VALUES')
      for id = tid + 1, opt.items, opt.threads do
         con:bulk_insert_next(string.format("(%d, %d, '%s')", id, id % 90, sysbench.rand.string('@@@@-##')))
      end
      con:bulk_insert_done()
   end
   con:query('COMMIT')
end
sysbench.cmdline.commands = { prepare = { create, sysbench.cmdline.PARALLEL_COMMAND } }
function thread_init() con = connect() end
function sysbench.hooks.before_restart_event() con:query('ROLLBACK') end
function event()
   local i, id = sysbench.rand.uniform(1, TABLES), sysbench.rand.default(1, sysbench.opt.items)
   con:query('START TRANSACTION')
   local stock = con:query_row(string.format('SELECT stock FROM items%d WHERE id = %d FOR UPDATE', i, id))
   local rs = con:query(string.format('SELECT id, name FROM items%d WHERE id < %d ORDER BY id LIMIT 3', i, id))
   for n = 1, rs.nrows do
      local row = rs:fetch_row()
      assert(tonumber(row[1]) == n and #row[2] == 7)
   end
   con:query(string.format('UPDATE items%d SET stock = %d WHERE id = %d', i, (stock + 80) % 91, id))
   con:query(string.format("INSERT INTO orders%d VALUES (%d, %d, NOW(), '%s')", i, sysbench.rand.unique(), id,
                           os.date('%Y-%m-%d %H:%M:%S')))
   local placed, day = con:query_row(string.format(
      'SELECT placed, day FROM orders%d WHERE item = %d ORDER BY id LIMIT 1', i, id))
   assert(#placed >= 19 and #day == 19)
   con:query_row('SELECT current_time(2), localtime, localtimestamp(0), CURRENT_TIMESTAMP (6), current_date')
   local statement = con:prepare(string.format('UPDATE items%d SET note = ? WHERE id = ?', i))
   local note = statement:bind_create(sysbench.sql.type.VARCHAR, 10)
   local key = statement:bind_create(sysbench.sql.type.INT)
   statement:bind_param(note, key)
   if id % 2 == 0 then note:set('even') else note:set(nil) end
   key:set(id)
   statement:execute()
   statement:close()
   if sysbench.rand.uniform(1, 20) == 1 then
      ffi.C.sb_counter_inc(sysbench.tid, ffi.C.SB_CNT_ERROR)
      con:query('ROLLBACK')
   else
      con:query('COMMIT')
   end
end
"#;

#[test]
#[ignore = "full"]
fn equal_servers_give_equal_answers_to_a_script_in_every_block() {
    let test = TestDir::new();
    std::fs::write(test.path().join("orders.lua"), ORDERS).unwrap();
    let microbenchmarks = "[[microbenchmark]]\nname = \"orders\"\nscript = \"orders.lua\"\n";
    let candidates = [INNODB, ("second", INNODB.1), POSTGRES, ("second-postgres", POSTGRES.1)];
    let text = experiment("1", microbenchmarks, &candidates);
    let out = test.out();
    finish(test.text_command(&text, &out, &[])).assert_code(0);
    let blocks = Stored::open(&out).counted_blocks();
    assert!(blocks.len() >= 6);
    for block in blocks.into_values() {
        for pair in [[0, 1], [2, 3]] {
            let slices: Vec<Slice> =
                block.iter().filter(|slice| pair.contains(&slice.candidate)).cloned().collect();
            assert_eq!(slices.len(), 2);
            assert_eq!(candidates_differ(&slices), None);
        }
    }
    assert_eq!(count(&out, "SELECT SUM(errors) FROM slice"), 0);
}

#[test]
fn data_is_made_by_several_clients() {
    let test = TestDir::new();
    std::fs::write(test.path().join("orders.lua"), ORDERS).unwrap();
    let microbenchmarks = "[[microbenchmark]]\nname = \"orders\"\nscript = \"orders.lua\"\n";
    // The third client creates no table, and would fill tables too early without a pause.
    let text = experiment("3", microbenchmarks, &[INNODB]);
    finish(test.text_command(&text, &test.out(), &[])).assert_code(0);
}

#[test]
fn syntax_error_fails_its_candidate_with_line_and_statement() {
    let test = TestDir::new();
    let script = "function prepare() sysbench.sql.driver():connect():query('CREATE TABLE a (i INT)') end\n\
                  function thread_init() con = sysbench.sql.driver():connect() end\n\
                  function event()\n  con:query('SELECT `i` FROM a')\nend\n";
    std::fs::write(test.path().join("quotes.lua"), script).unwrap();
    let microbenchmarks = "[[microbenchmark]]\nname = \"quotes\"\nscript = \"quotes.lua\"\n";
    let text = experiment("1", microbenchmarks, &[INNODB, POSTGRES]);
    let out = test.out();
    finish(test.text_command(&text, &out, &[]))
        .assert_code(1)
        .assert_prints("quotes.lua:4: syntax error at or near \"FROM\"")
        .assert_prints("in: SELECT `i` FROM a")
        .assert_prints("the only candidate besides the baseline");
    assert_eq!(count(&out, "SELECT COUNT(DISTINCT candidate) FROM failure"), 1);
}

/// By a statement in `thread_init`, and by one in an event that has changed data before.
#[test]
fn candidate_that_refuses_a_script_is_measured_with_the_others() {
    let test = TestDir::new();
    let script = |name: &str, init: &str, statement: &str| {
        let text = format!(
            "function prepare() sysbench.sql.driver():connect():query('CREATE TABLE {name} (i INT)') end\n\
             function thread_init() con = sysbench.sql.driver():connect(); {init} end\n\
             function event()\n  con:query('INSERT INTO {name} VALUES (1)')\n  {statement}\nend\n"
        );
        std::fs::write(test.path().join(format!("{name}.lua")), text).unwrap();
        format!("[[microbenchmark]]\nname = \"{name}\"\nscript = \"{name}.lua\"\n")
    };
    let microbenchmarks = [
        script("early", "con:prepare('SELECT `i` FROM early')", ""),
        script("late", "", "con:query('SELECT `i` FROM late LIMIT 1')"),
        script("fine", "", "con:query('SELECT i FROM fine LIMIT 1')"),
    ];
    let text = experiment("1", &microbenchmarks.concat(), &[INNODB, POSTGRES]);
    let out = test.out();
    finish(test.text_command(&text, &out, &[]))
        .assert_code(1)
        .assert_prints("early.lua:2: syntax error at or near \"FROM\"")
        .assert_prints("late.lua:5: syntax error at or near \"FROM\"")
        .assert_prints("it is left out of this microbenchmark, and its answers are not compared");
    assert_eq!(count(&out, "SELECT COUNT(*) FROM failure"), 2);
    let relative = read_csv(&out.join("relative.csv"));
    assert_eq!(relative.len(), 1 + 1, "{relative:?}");
    assert_eq!(relative[1][0], "fine");
}

/// The script is part of the run: it is removed before the run is resumed.
#[test]
fn killed_run_of_a_script_resumes_without_its_file() {
    let test = TestDir::new();
    let file = test.path().join("bank.lua");
    std::fs::write(&file, BANK).unwrap();
    let microbenchmarks = "[[microbenchmark]]\nname = \"bank\"\nscript = \"bank.lua\"\n";
    let text = experiment("1", microbenchmarks, &[INNODB, POSTGRES])
        .replace("budget = \"50ms\"", "budget = \"400ms\"\ntarget = \"0.01%\"");
    let out = test.out();
    let mut run = Background::start(test.text_command(&text, &out, &[]), test.path());
    run.wait_until("slices", || slices_of_live_run(&out, "bank") >= 10);
    let home = home_of_servers(&out).unwrap();
    run.signal(libc::SIGKILL);
    drop(run);
    wait_until("the servers end", || processes_in(&home).iter().all(|pid| is_gone(*pid)));
    let before = Stored::open(&out).slices();
    assert_eq!(count(&out, "SELECT COUNT(*) FROM microbenchmark WHERE done"), 0);

    std::fs::remove_file(file).unwrap();
    resume(&out, &[]).assert_code(0);
    let after = Stored::open(&out).slices();
    assert_eq!(after[..before.len()], before, "slices are lost");
    assert!(after.len() > before.len());
    assert!(after.iter().all(|slice| (slice.errors, slice.wrong) == (0, 0)));
    // A line per candidate: the baseline's is not one.
    assert_eq!(read_csv(&out.join("relative.csv")).len(), 1 + 1);
}

#[test]
#[ignore = "full"]
fn scripts_run_on_the_program_of_mysql() {
    // Keeps others from removing it.
    let Some(_release) = crate::server_release::mysql() else { return };
    let test = TestDir::new();
    let script = |name: &str, stages: &str| {
        format!(
            "[[microbenchmark]]\nname = \"{name}\"\nscript = \"{name}.lua\"\n{stages}\
             options = {{ table-size = 300 }}\n"
        )
    };
    let microbenchmarks =
        script("oltp_point_select", "stages = [\"post\"]\n") + &script("oltp_read_write", "");
    let mysql = ("mysql", "system = \"mysql\"\nrelease = { debian = \"sid\" }");
    let text = experiment("2", &microbenchmarks, &[INNODB, mysql])
        .replace("\"own\"", "\"oltp_point_select\", \"oltp_read_write\"");
    let out = test.out();
    finish(test.text_command(&text, &out, &[])).assert_code(0);
    assert_eq!(read_csv(&out.join("relative.csv")).len(), 1 + 2);
    assert_eq!(count(&out, "SELECT SUM(errors) + SUM(wrong_results) FROM slice"), 0);
    assert_eq!(count(&out, "SELECT COUNT(*) FROM failure"), 0);
}

#[test]
fn script_is_measured_without_an_experiment_file() {
    let test = TestDir::new();
    let file = |name: &str| test.path().join(name).display().to_string();
    let (out, saved) = (file("out"), file("saved.toml"));
    let words = ["run", "--script", "oltp_point_select.lua", "--option", "table_size=500"];
    let options = ["--for", "900ms", "--out", &out, "--save", &saved, "mariadb", "postgresql"];
    let rule = ["--fail-if", "slower 99% of postgresql"];
    let finished = call(words.into_iter().chain(options).chain(rule));
    finished.assert_prints("--details");
    // Whether it is that much slower is not the question here.
    assert!(matches!(finished.code, Some(0 | 3)), "{finished:?}");
    let all = finished.all().replace("\n  ", " ");
    assert!(all.contains("on oltp_point_select"), "{all}");
    assert!(test.out().join("junit.xml").exists());
    let text = std::fs::read_to_string(&saved).unwrap();
    assert_eq!(text, Stored::open(&test.out()).experiment_text());
    assert!(text.contains("stages = [\"post\"]"), "{text}");
    call(["check", &saved]).assert_code(0).assert_prints("oltp_point_select");
}

#[test]
fn words_of_run_belong_to_a_file_or_to_a_script() {
    let test = TestDir::new();
    let out = test.out().display().to_string();
    for (words, expected) in [
        (vec!["run", "a.toml", "--clients", "4"], "--clients needs --script"),
        (vec!["run", "a.toml", "b.toml"], "name one experiment file"),
        (vec!["run", "a.toml", "--option", "tables=4"], "--option needs --script"),
        (vec!["run", "--script", "oltp_read_only.lua", "mraiadb"], "did you mean `mariadb`?"),
        (
            vec!["run", "--script", "no-such.lua", "mariadb"],
            "dbdyno run mariadb --script no-such.lua",
        ),
        (vec!["run", "--script", "oltp_read_only.lua", "sqlite"], "scripts cannot run on SQLite"),
        (vec!["compare", "mariadb", "-m", "scan", "--script", "a.lua"], "cannot be used with"),
    ] {
        let arguments = words.iter().copied().chain(["--out", &out]);
        call(arguments).assert_code(2).assert_prints(expected);
    }
    let resumed = call(["run", "--resume", &out, "--more", "10s", "--waits"]);
    resumed.assert_code(2).assert_prints("--waits is for a new run");
    assert!(!test.out().exists());
}

/// Two statements, one of which sleeps on a server with a certain setting. The think time makes events few.
const SLEEPS: &str = "
ffi.cdef('int usleep(unsigned int);')
function prepare()
   sysbench.sql.driver():connect():query('CREATE TABLE empty (id INTEGER PRIMARY KEY)')
end
function thread_init()
   con = sysbench.sql.driver():connect()
   statement = con:prepare('SELECT count(*) FROM empty WHERE id = ?')
   id = statement:bind_create(sysbench.sql.type.INT)
   statement:bind_param(id)
end
function event()
   ffi.C.usleep(5000)
   con:query([[SELECT pg_sleep(CASE current_setting('enable_bitmapscan') WHEN 'on' THEN 0 ELSE 0.4 END)]])
   id:set(sysbench.rand.uniform(1, 9))
   statement:execute()
end";

#[test]
fn statement_that_is_slower_on_one_candidate_is_named() {
    let test = TestDir::new();
    std::fs::write(test.path().join("sleeps.lua"), SLEEPS).unwrap();
    let microbenchmarks = "[[microbenchmark]]\nname = \"sleeps\"\nscript = \"sleeps.lua\"\n";
    let slow = format!("{}\n[candidate.configuration]\nenable_bitmapscan = \"off\"", POSTGRES.1);
    let text = experiment("1", microbenchmarks, &[POSTGRES, ("slow", &slow)]);
    let out = test.out();
    finish(test.text_command(&text, &out, &[])).assert_code(0);
    let rows = read_csv(&out.join("statements.csv"));
    let slow = "SELECT pg_sleep(CASE current_setting(?) WHEN ? THEN ? ELSE ? END)";
    let statements: Vec<&str> = rows[1..].iter().map(|row| row[4].as_str()).collect();
    assert_eq!(statements, [slow, "SELECT count(*) FROM empty WHERE id = ?"], "{rows:?}");
    let number = |column: usize| rows[1][column].parse::<f64>().unwrap();
    assert_eq!(number(5), 1.0, "executions per event");
    assert!(number(7) > 390_000.0 && number(8) > 2.0, "{rows:?}");
    call(["report", &out.display().to_string(), "--details"]).assert_prints("SELECT pg_sleep(");
    assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains(" ELSE ? END)"));
}
