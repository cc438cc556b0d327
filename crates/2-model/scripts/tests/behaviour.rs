//! What scripts can and cannot do, with a host that answers as a test needs it.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dbdyno_scripts::{
    Access, Client, Driver, Host, Options, Outcome, ParameterType, Progress, Rows, START_TIME,
    ScriptError, Seed, Sent, Setup, Source, SqlError, SqlErrorKind, UniquePosition, Value, Version,
    init, inspect, prepare, take_turns, text_of,
};

/// A host whose answers are given in advance; without one, statements succeed.
#[derive(Default)]
struct Fake {
    answers: VecDeque<Result<Outcome, SqlError>>,
    rows: Rows,
    /// Whether answers are given later, by `resume`.
    waits: bool,
    statements: Vec<String>,
    /// The last types of parameters, and the error of the next ones.
    types: Vec<ParameterType>,
    refuses: Option<SqlError>,
    /// The last statement as it was sent.
    last: Vec<u8>,
    more: VecDeque<Outcome>,
    printed: Vec<String>,
    restarts: u32,
    slept: Duration,
}

impl Fake {
    fn answer(&mut self) -> Sent {
        if self.waits {
            return Sent::Waiting;
        }
        Sent::Done(self.answers.pop_front().unwrap_or(Ok(Outcome::default())))
    }
}

impl Host for Fake {
    fn prepare(&mut self, sql: &[u8]) -> Result<u32, SqlError> {
        self.statements.push(format!("prepare {}", String::from_utf8_lossy(sql)));
        Ok(0)
    }

    fn bind(&mut self, _: u32, types: &[ParameterType]) -> Result<(), SqlError> {
        self.types = types.to_vec();
        self.refuses.take().map_or(Ok(()), Err)
    }

    fn execute(&mut self, _: u32, values: &[Value<'_>]) -> Sent {
        self.statements.push(format!("{values:?}"));
        self.answer()
    }

    fn query(&mut self, sql: &[u8]) -> Sent {
        self.statements.push(String::from_utf8_lossy(sql).into_owned());
        self.last = sql.to_vec();
        self.answer()
    }

    fn has_more_results(&self) -> bool {
        !self.more.is_empty()
    }

    fn next_result(&mut self) -> Option<Outcome> {
        self.more.pop_front()
    }

    fn sleep(&mut self, time: Duration) {
        self.slept += time;
    }

    fn take_rows(&mut self) -> Rows {
        std::mem::take(&mut self.rows)
    }

    fn close(&mut self, _: u32) {}

    fn print(&mut self, text: &str) {
        self.printed.push(text.to_owned());
    }

    fn restarted(&mut self) {
        self.restarts += 1;
    }
}

fn failure(number: i32, kind: SqlErrorKind) -> Result<Outcome, SqlError> {
    let (state, message) = ("40001".to_owned(), "Deadlock found".to_owned());
    Err(SqlError { number, state, message, kind })
}

fn source(text: &str) -> Source {
    Source::new("my.lua", text.to_owned(), |_| None).unwrap()
}

fn setup() -> Setup {
    Setup {
        driver: Driver::MySql,
        storage_engine: None,
        access: Arc::default(),
        options: Options::new(),
        client: 0,
        clients: 2,
        seed: Seed::of(&[1]),
        unique: UniquePosition::default(),
        time_limit: Setup::TIME_LIMIT,
        restricted: false,
    }
}

fn start(text: &str, host: &mut Fake) -> Result<Client, ScriptError> {
    Client::start(&source(text), &setup(), host)
}

const CONNECT: &str = "function thread_init() con = sysbench.sql.driver():connect() end ";

#[test]
fn event_with_a_deadlock_is_restarted_and_its_hook_called_once() {
    let text = format!(
        "{CONNECT}
        function event() con:query('A') con:query('B') end
        function sysbench.hooks.before_restart_event(e) print(e.sql_errno, e.sql_state, e.query) end"
    );
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    host.answers.push_back(Ok(Outcome::default()));
    host.answers.push_back(failure(1213, SqlErrorKind::Restart));
    assert_eq!(client.event(&mut host).unwrap(), Progress::Event);
    assert_eq!(host.statements, ["A", "B", "A", "B"]);
    assert_eq!((host.restarts, host.printed), (1, vec!["1213\t40001\tB".to_owned()]));
}

/// It could pretend to be a text of any length, and be read as such.
#[test]
fn userdata_is_no_text() {
    for call in ["con:query(p)", "con:prepare('?'):bind_create(12, 9):set(p)"] {
        let text = format!(
            "{CONNECT}
            function event()
              local p = newproxy(true)
              getmetatable(p).__tostring = function() return p end
              getmetatable(p).__len = function() return 400 end
              {call}
            end"
        );
        let mut host = Fake::default();
        let error = start(&text, &mut host).unwrap().event(&mut host).unwrap_err();
        assert!(error.message.contains("a string is needed, not userdata"), "{}", error.message);
        assert!(host.statements.iter().all(|one| one == "prepare ?"), "{:?}", host.statements);
    }
}

#[test]
fn failed_statement_ends_the_script_with_its_line_and_sql() {
    let text = format!("{CONNECT}\nfunction event()\n  con:query('SELEC 1')\nend");
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    host.answers.push_back(failure(1064, SqlErrorKind::Failed));
    let error = client.event(&mut host).unwrap_err();
    assert_eq!(
        error.to_string(),
        "my.lua:3: Deadlock found (error 1064, SQLSTATE '40001') in: SELEC 1"
    );
    assert_eq!(error.position(), Some(("my.lua", 3)));
    assert!(!error.lost_connection);
    assert!(client.event(&mut host).is_err());
}

#[test]
fn hook_can_turn_an_error_into_a_restart() {
    let text = format!(
        "{CONNECT}
        function event() con:query('A') end
        function sysbench.hooks.sql_error_ignorable(e) return e.sql_errno == 1062 end"
    );
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    host.answers.push_back(failure(1062, SqlErrorKind::Failed));
    assert_eq!(client.event(&mut host).unwrap(), Progress::Event);
    assert_eq!(host.restarts, 1);
}

#[test]
fn error_that_comes_again_without_end_ends_the_script() {
    let text = format!("{CONNECT} function event() con:query('A') end");
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    host.answers.extend((0..20_000).map(|_| failure(1062, SqlErrorKind::Restart)));
    // A new script that takes long lets others run.
    let error = loop {
        match client.event(&mut host) {
            Ok(progress) => assert_eq!(progress, Progress::Sleeping),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.starts_with("an event was restarted 10000 times in a row: "), "{error}");
    assert_eq!(host.restarts, 10_000);
}

#[test]
fn lost_connection_is_reported() {
    let mut host = Fake::default();
    let text = format!("{CONNECT} function event() con:query('A') end");
    let mut client = start(&text, &mut host).unwrap();
    host.answers.push_back(failure(2013, SqlErrorKind::Lost));
    assert!(client.event(&mut host).unwrap_err().lost_connection);
}

#[test]
fn lost_connection_ends_a_script_whose_hook_ignores_all_errors() {
    let text = format!(
        "{CONNECT}
        function event() con:query('A') end
        function sysbench.hooks.sql_error_ignorable() return true end"
    );
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    host.answers.extend((0..3).map(|_| failure(2013, SqlErrorKind::Lost)));
    assert!(client.event(&mut host).unwrap_err().lost_connection);
    assert_eq!((host.restarts, host.statements), (0, vec!["A".to_owned()]));
    // A client that waits for an answer is told that its connection is lost when it is dropped.
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    host.waits = true;
    assert_eq!(client.event(&mut host).unwrap(), Progress::Waiting);
    drop(client);
}

#[test]
fn clients_wait_for_answers_in_turns() {
    let text = format!(
        "{CONNECT} function event() local rs = con:query('A') print(rs.nrows) con:query('B') end"
    );
    let mut host = Fake { waits: true, ..Fake::default() };
    let mut clients: Vec<Client> = (0..3).map(|_| start(&text, &mut host).unwrap()).collect();
    for _ in 0..100 {
        for client in &mut clients {
            assert_eq!(client.event(&mut host).unwrap(), Progress::Waiting);
        }
        for client in &mut clients {
            let answer = Ok(Outcome { has_rows: true, rows: 7 });
            assert_eq!(client.resume(&mut host, answer).unwrap(), Progress::Waiting);
        }
        for client in &mut clients {
            let answer = Ok(Outcome::default());
            assert_eq!(client.resume(&mut host, answer).unwrap(), Progress::Event);
        }
    }
    assert_eq!(host.statements.len(), 600);
    assert!(host.printed.iter().all(|line| line == "7"));
    // One of them waits when it is dropped.
    clients[0].event(&mut host).unwrap();
}

#[test]
fn rows_of_queries_can_be_fetched() {
    let text = format!(
        "{CONNECT} function event()
           local a, b, c = con:query_row('A')
           print(a, b, c)
           local rs = con:query('B')
           for i = 1, rs.nrows do local row = rs:fetch_row() print(i, row[1], row[2], rs.nfields) end
           print(rs:fetch_row())
        end"
    );
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    let value = |text: &str| Some(text.as_bytes().to_vec());
    host.rows = vec![vec![value("x"), None, value("z")]];
    host.answers.push_back(Ok(Outcome { has_rows: true, rows: 1 }));
    host.answers.push_back(Ok(Outcome { has_rows: true, rows: 0 }));
    client.event(&mut host).unwrap();
    assert_eq!(host.printed, ["x\tnil\tz", "nil"]);
}

#[test]
fn number_of_columns_is_known_before_the_first_row_is_fetched() {
    let text = format!(
        "{CONNECT} function event()
           local rs = con:query('A')
           print(rs.nfields, rs:fetch_row()[3], rs.nfields)
           rs:free()
        end"
    );
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    host.rows = vec![vec![None, None, Some(b"z".to_vec())]];
    host.answers.push_back(Ok(Outcome { has_rows: true, rows: 1 }));
    client.event(&mut host).unwrap();
    assert_eq!(host.printed, ["3\tz\t3"]);
}

#[test]
fn rows_that_were_too_many_to_keep_cannot_be_fetched() {
    let text = format!(
        "{CONNECT} function event()
           local rs = con:query('A')
           print(rs.nrows)
           rs:fetch_row()
        end"
    );
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    host.answers.push_back(Ok(Outcome { has_rows: true, rows: 3 }));
    let error = client.event(&mut host).unwrap_err().to_string();
    assert_eq!(error, "my.lua:4: more than 64 MiB of rows, which cannot be fetched");
    assert_eq!(host.printed, ["3"]);
}

#[test]
fn rows_can_be_fetched_until_the_next_statement() {
    let text = format!(
        "{CONNECT} function event()
           local rs = con:query('A')
           con:query('B')
           rs:fetch_row()
        end"
    );
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    for has_rows in [true, false] {
        host.answers.push_back(Ok(Outcome { has_rows, rows: 1 }));
    }
    let error = client.event(&mut host).unwrap_err().to_string();
    assert_eq!(error, "my.lua:4: rows can be fetched until the next statement");
}

#[test]
fn parameters_have_their_types() {
    let text = "
        function thread_init()
           con = sysbench.sql.driver():connect()
           local t = sysbench.sql.type
           stmt = con:prepare('INSERT INTO t VALUES (?, ?, ?, ?)')
           p = { stmt:bind_create(t.INT), stmt:bind_create(t.DOUBLE), stmt:bind_create(t.CHAR, 5),
                 stmt:bind_create(t.BIGINT) }
           stmt:bind_param(unpack(p))
        end
        function event()
           p[1]:set(-7.9) p[2]:set(1.5) p[3]:set('longer text') p[4]:set(nil)
           stmt:execute()
        end";
    let mut host = Fake::default();
    let mut client = start(text, &mut host).unwrap();
    client.event(&mut host).unwrap();
    let expected =
        format!("{:?}", [Value::Int(-7), Value::Double(1.5), Value::Text(b"longe"), Value::Null]);
    assert_eq!(host.statements[1], expected);
    let (int, text) = (ParameterType::Int, ParameterType::Text);
    assert_eq!(host.types, [int, ParameterType::Double, text, int]);
}

#[test]
fn parameters_that_an_event_binds_replace_the_earlier_ones() {
    let text = "
        function thread_init()
           stmt = sysbench.sql.driver():connect():prepare('SELECT ?, ?')
           int = stmt:bind_create(sysbench.sql.type.INT)
           text = stmt:bind_create(sysbench.sql.type.CHAR, 5)
        end
        function event()
           int:set(1) text:set('a')
           stmt:bind_param(text, int)
           stmt:execute()
           stmt:bind_param(int)
           stmt:execute()
        end";
    let mut host = Fake::default();
    let mut client = start(text, &mut host).unwrap();
    for _ in 0..2 {
        client.event(&mut host).unwrap();
        assert_eq!(host.types, [ParameterType::Int]);
    }
    let both = format!("{:?}", [Value::Text(b"a"), Value::Int(1)]);
    let one = format!("{:?}", [Value::Int(1)]);
    assert_eq!(host.statements[1..], [&*both, &*one, &*both, &*one]);
}

#[test]
fn refused_parameters_are_an_error_of_bind_param() {
    let text = "function thread_init()
           local stmt = sysbench.sql.driver():connect():prepare('SELECT ?')
           stmt:bind_param(stmt:bind_create(sysbench.sql.type.INT))
        end
        function event() end";
    let refuses = failure(0, SqlErrorKind::Failed).err();
    let mut host = Fake { refuses, ..Fake::default() };
    let error = start(text, &mut host).err().unwrap().to_string();
    assert_eq!(error, "my.lua:3: Deadlock found (SQLSTATE '40001') in: SELECT ?");
}

#[test]
fn parameters_of_0_5_may_become_nil_and_longer() {
    let text = "
        function thread_init()
           s = db_prepare('SELECT ?, ?, ?')
           p = { 1, 'x', 3 }
           db_bind_param(s, p)
        end
        function event()
           p[1], p[2], p[3] = 7, nil, 9
           db_execute(s)
           p[1], p[2], p[3] = nil, string.rep('y', 300), 8
           db_execute(s)
           p[2] = 'z'
           db_execute(s)
        end";
    let mut host = Fake::default();
    let mut client = start(text, &mut host).unwrap();
    client.event(&mut host).unwrap();
    let long = "y".repeat(300);
    let expected = [
        [Value::Int(7), Value::Null, Value::Int(9)],
        [Value::Null, Value::Text(long.as_bytes()), Value::Int(8)],
        [Value::Null, Value::Text(b"z"), Value::Int(8)],
    ];
    assert_eq!(host.statements[1..], expected.map(|values| format!("{values:?}")));
}

#[test]
fn time_before_the_first_block_is_that_of_the_server() {
    let text = "
        local function show() print(os.time(), os.date('!%Y-%m-%d')) end
        prepare, init, thread_init = show, show, show
        show()
        function event() show() end";
    let mut host = Fake::default();
    prepare(&source(text), &setup(), &mut host).unwrap();
    init(&source(text), &setup(), &mut host).unwrap();
    start(text, &mut host).unwrap().event(&mut host).unwrap();
    let expected = format!("{START_TIME}\t2025-01-01");
    assert_eq!(host.printed, vec![expected; 7]);
}

#[test]
fn files_next_to_the_script_are_those_that_are_stored_with_it() {
    let text = "
        local directory = string.match(test, '(.*/)') or ''
        print(dofile(directory .. 'common.lua'), dofile('common.lua'), loadfile('./common.lua')(), value)
        print(sysbench.cmdline.script_path, sysbench.cmdline.argv[1], pcall(dofile, '/no/such/common'))
        print(pcall(function() dofile(directory .. 'broken.lua') end))
        function event() end";
    let read = |path: &str| match path {
        "/no/such/my.lua" => Ok(text.to_owned()),
        "/no/such/common.lua" => Ok("value = (value or 0) + 1 return 'common'".to_owned()),
        "/no/such/broken.lua" => Ok("#!/usr/bin/lua\nx = = 1".to_owned()),
        _ => Err(format!("{path} does not exist")),
    };
    let source = Source::find("/no/such/my.lua", read).unwrap();
    let mut host = Fake::default();
    Client::start(&source, &setup(), &mut host).unwrap();
    let path = "/no/such/my.lua";
    assert_eq!(host.printed[0], "common\tcommon\tcommon\t3");
    let missing = "cannot open /no/such/common: No such file or directory";
    assert_eq!(host.printed[1], format!("{path}\t{path}\tfalse\t{missing}"));
    assert_eq!(host.printed[2], "false\tbroken.lua:2: unexpected symbol near '='");
}

#[test]
fn same_seed_gives_the_same_block() {
    let text = format!(
        "{CONNECT} function event()
           con:query(string.format('%d %d %d', sysbench.rand.default(1, 1e6), math.random(1e6), os.time()))
        end"
    );
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    let mut block = |seed: u64, host: &mut Fake| {
        host.statements.clear();
        client.start_block(Seed::of(&[seed]), 0, 1e9 + seed as f64);
        for _ in 0..20 {
            client.event(host).unwrap();
        }
        host.statements.clone()
    };
    let (first, second) = (block(1, &mut host), block(2, &mut host));
    assert_ne!(first, second);
    assert_eq!(block(1, &mut host), first);
    assert!(first[0].ends_with(" 1000000001"), "{}", first[0]);
}

#[test]
fn time_advances_by_what_the_script_sleeps() {
    let text = "
        ffi.cdef('int usleep(unsigned int);')
        function event()
           local start, sleeps = os.time(), 0
           while os.time() < start + 1 do ffi.C.usleep(1000) sleeps = sleeps + 1 end
           io.popen('sleep 0.75'):close()
           print(sleeps, os.time() - start, os.date('!%S'))
        end";
    let mut host = Fake::default();
    let mut client = start(text, &mut host).unwrap();
    for _ in 0..2 {
        client.start_block(Seed::of(&[1]), 0, START_TIME + 7.0);
        for _ in 0..2 {
            while client.event(&mut host).unwrap() == Progress::Sleeping {}
        }
    }
    let block = ["1000\t1\t08", "250\t1\t09"];
    assert_eq!(host.printed, [block, block].concat());
}

#[test]
fn endless_loop_is_reported_with_its_line() {
    let limited = Setup { time_limit: Duration::from_millis(50), ..setup() };
    for text in [
        "\nwhile true do end",
        "function thread_init()\n while true do end end function event() end",
        "local start = os.time() while os.time() <= start do end",
        "function event() pcall(function()\n local i = 0 while true do i = i + 1 end end)\n while true do end end",
    ] {
        let mut host = Fake::default();
        let error = match Client::start(&source(text), &limited, &mut host) {
            // In between, others could run.
            Ok(mut client) => loop {
                match client.event(&mut host) {
                    Ok(progress) => assert_eq!(progress, Progress::Sleeping),
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        let message = error.to_string();
        assert!(message.starts_with("my.lua:"), "{message}");
        assert!(message.contains("an endless loop?"), "{message}");
        assert_eq!(message.contains("os.time() advances only"), text.contains("os.time"));
    }
}

#[test]
fn output_goes_to_the_host_and_exit_is_an_error() {
    let text = format!(
        "print('a', 1, nil) io.write('b', 2) io.stdout:write('c')
        {CONNECT} function event()\nos.exit(3) end"
    );
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    assert_eq!(host.printed, ["a\t1\tnil", "b2", "c"]);
    let error = client.event(&mut host).unwrap_err().to_string();
    assert_eq!(error, "my.lua:3: the script called os.exit(3)");
}

#[test]
fn output_goes_to_the_file_that_io_output_names() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let text = format!(
        "function event()
           io.output('{}'):write('a')
           io.write('b')
           io.close()
           io.output(io.stdout):write('c')
           io.write('d')
           print(pcall(io.output, '/no/such/file'))
        end",
        file.display()
    );
    let mut host = Fake::default();
    start(&text, &mut host).unwrap().event(&mut host).unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), "ab");
    let problem = "false\t/no/such/file: No such file or directory";
    assert_eq!(host.printed, ["c", "d", problem]);
}

#[test]
fn errors_before_the_first_event_are_reported() {
    let mut host = Fake::default();
    for (text, expected) in [
        ("x = = 1", "my.lua:1: unexpected symbol near '='"),
        (
            "\nunknown_function()",
            "my.lua:2: attempt to call global 'unknown_function' (a nil value)",
        ),
        ("function thread_init()\nerror('mine') end function event() end", "my.lua:2: mine"),
        ("function thread_init() end", "the script has no function event()"),
    ] {
        let error = start(text, &mut host).err().unwrap();
        assert_eq!(error.to_string(), expected, "{text}");
    }
}

#[test]
fn prepare_runs_for_each_client_if_it_is_parallel() {
    let text = "
        function create()
           local con = sysbench.sql.driver():connect()
           con:query('CREATE ' .. sysbench.tid .. ' of ' .. sysbench.opt.threads)
           con:bulk_insert_init('INSERT INTO t VALUES')
           for i = 1, 3 do con:bulk_insert_next('(' .. i .. ')') end
           con:bulk_insert_done()
        end
        function event() end";
    let rows = "INSERT INTO t VALUES (1),(2),(3)";
    for (commands, expected) in [
        ("prepare = create", vec!["CREATE 0 of 2", rows]),
        (
            "sysbench.cmdline.commands = {prepare = {create, sysbench.cmdline.PARALLEL_COMMAND}}",
            vec!["CREATE 0 of 2", rows, "CREATE 1 of 2", rows],
        ),
    ] {
        let mut host = Fake::default();
        prepare(&source(&format!("{text} {commands}")), &setup(), &mut host).unwrap();
        assert_eq!(host.statements, expected);
    }
}

#[test]
fn client_of_prepare_that_sleeps_waits_for_the_others() {
    let text = "
        function create()
           local con = sysbench.sql.driver():connect()
           con:query('CREATE ' .. sysbench.tid)
           os.execute('sleep 30')
           con:query('LOAD ' .. sysbench.tid)
        end
        sysbench.cmdline.commands = {prepare = {create, sysbench.cmdline.PARALLEL_COMMAND}}
        function event() end";
    let mut host = Fake::default();
    prepare(&source(text), &setup(), &mut host).unwrap();
    assert_eq!(host.statements, ["CREATE 0", "CREATE 1", "LOAD 0", "LOAD 1"]);
    // One that fails ends the others, which are asleep.
    let fails = text.replace(
        "con:query('LOAD '",
        "if sysbench.tid == 0 then error('no') end con:query('LOAD '",
    );
    let error = prepare(&source(&fails), &setup(), &mut Fake::default()).unwrap_err();
    assert_eq!(error.to_string(), "my.lua:6: no");
}

#[test]
fn statement_without_a_result_set_returns_what_is_true_and_equals_nil() {
    let text = format!(
        "{CONNECT}
        function event()
           local result = con:query('UPDATE t SET a = 1')
           assert(result)
           assert(result == nil and tostring(result) ~= nil)
           local statement = con:prepare('UPDATE t SET a = 1')
           assert(statement:execute()) assert(statement:close())
           if con:query_row('UPDATE') then error('a row') end
           if last then print(result.nrows) end
           last = true
        end"
    );
    let mut host = Fake::default();
    let mut client = start(&text, &mut host).unwrap();
    assert_eq!(client.event(&mut host).unwrap(), Progress::Event);
    let error = client.event(&mut host).unwrap_err().to_string();
    assert!(error.starts_with("my.lua:9: the statement returned no result set"), "{error}");
}

#[test]
fn results_after_the_first_one_are_those_of_1_1() {
    let text = format!(
        "{CONNECT}
        function event()
           local rows = con:query('SELECT 1; SELECT 2')
           while true do
              print(rows == nil and 'nil' or rows.nrows)
              if not con:more_results() then break end
              rows = con:next_result()
           end
           assert(con:next_result() == nil)
        end"
    );
    let source = Source { version: Version::V1_1, ..source(&text) };
    let mut host = Fake::default();
    let mut client = Client::start(&source, &setup(), &mut host).unwrap();
    let of = |has_rows, rows| Outcome { has_rows, rows };
    host.answers.push_back(Ok(of(true, 5)));
    host.more.extend([of(false, 0), of(true, 7)]);
    client.event(&mut host).unwrap();
    assert_eq!(host.printed, ["5", "nil", "7"]);
}

#[test]
fn bytes_of_any_encoding_are_sent_as_they_are() {
    let text = b"-- Andr\xe9
        function thread_init() con = sysbench.sql.driver():connect() end
        function event() con:query('\xe9' .. string.char(255) .. '\xc3\xa9') end";
    let source = Source::new("my.lua", text_of(text), |_| None).unwrap();
    let mut host = Fake::default();
    let mut client = Client::start(&source, &setup(), &mut host).unwrap();
    client.event(&mut host).unwrap();
    assert_eq!(host.last, b"\xe9\xff\xc3\xa9");
}

#[test]
fn client_that_sleeps_suspends_itself_for_that_time() {
    let text = "
        local ffi = require('ffi')
        ffi.cdef[[
           int usleep(unsigned int);
           unsigned int sleep(unsigned int);
           struct timespec { long tv_sec; long tv_nsec; };
           int nanosleep(const struct timespec *, struct timespec *);
           int poll(void *, unsigned long, int);
        ]]
        function thread_init() ffi.C.sleep(2) end
        function event()
           ffi.C.usleep(1500)
           assert(ffi.C.nanosleep(ffi.new('struct timespec', 1, 5), nil) == 0)
           ffi.C.poll(nil, 0, 30)
           os.execute('sleep 0.25')
           local pipe = io.popen('sleep 0.5')
           assert(pipe:read('*a') == '' and pipe:close())
        end";
    let mut host = Fake::default();
    let mut client = start(text, &mut host).unwrap();
    assert_eq!(host.slept, Duration::from_secs(2));
    let mut slept = Vec::new();
    while client.event(&mut host).unwrap() == Progress::Sleeping {
        slept.push(client.sleep_time().as_nanos());
    }
    assert_eq!(slept, [1_500_000, 1_000_000_005, 30_000_000, 250_000_000, 500_000_000]);
}

/// A host of several clients, on which a statement is seen by the others.
#[derive(Default)]
struct Shared(Vec<String>);

impl Host for Shared {
    fn prepare(&mut self, _: &[u8]) -> Result<u32, SqlError> {
        Ok(0)
    }

    fn execute(&mut self, _: u32, _: &[Value<'_>]) -> Sent {
        Sent::Done(Ok(Outcome::default()))
    }

    fn query(&mut self, sql: &[u8]) -> Sent {
        let sql = String::from_utf8(sql.to_vec()).unwrap();
        let asks = sql.strip_prefix("HAS ");
        let rows = asks.map_or(0, |text| self.0.iter().filter(|one| *one == text).count() as u64);
        let has_rows = asks.is_some();
        if !has_rows {
            self.0.push(sql);
        }
        Sent::Done(Ok(Outcome { has_rows, rows }))
    }
}

#[test]
fn clients_that_wait_for_each_other_start_in_turns() {
    for waits in ["ffi.C.usleep(5000)", "os.execute('sleep 1')", "for i = 1, 10000 do end"] {
        let text = format!(
            "ffi.cdef('int usleep(unsigned int);')
            function thread_init()
               con = sysbench.sql.driver():connect()
               local mine, other = sysbench.tid, 1 - sysbench.tid
               if mine == 1 then con:query('started 1') end
               while con:query('HAS started ' .. other).nrows == 0 do {waits} end
               con:query('started ' .. mine)
            end
            function event() end"
        );
        let mut host = Shared::default();
        let mut clients: Vec<Client> = (0..2)
            .map(|client| {
                Client::load(&source(&text), &Setup { client, ..setup() }, &mut host).unwrap()
            })
            .collect();
        let step = |host: &mut Shared, client: &mut Client| client.proceed(host);
        take_turns(&mut host, &mut clients, step, |_, _| ()).unwrap();
        assert_eq!(host.0, ["started 1", "started 0", "started 1"], "{waits}");
    }
}

#[test]
fn client_that_does_not_sleep_lets_sleepers_wake() {
    // Whether it sleeps, and its steps.
    let mut clients = [(false, 0), (true, 0)];
    let step = |woke: &mut bool, client: &mut (bool, u32)| {
        client.1 += 1;
        *woke |= *client == (true, 2);
        Ok::<_, ScriptError>((!*woke).then_some(Duration::from_millis(client.0.into())))
    };
    take_turns(&mut false, &mut clients, step, |_, _| ()).unwrap();
    assert_eq!(clients[1], (true, 2));
}

#[test]
fn client_that_waits_for_what_never_happens_is_an_error() {
    let text = "function thread_init() while true do os.execute('sleep 5') end end
        function event() end";
    let error = start(text, &mut Fake::default()).err().unwrap().to_string();
    assert!(error.starts_with("my.lua:1: sleeping for 10 minutes without a statement"), "{error}");
}

#[test]
fn prepare_may_connect_again_and_may_be_missing() {
    let text = "
        local function run(sql)
           local con = sysbench.sql.driver():connect()
           con:query(sql)
           return con
        end
        function prepare() local one = run('A') run('B') one:query('C') one:disconnect() run('D') end
        function event() end";
    let mut host = Fake::default();
    prepare(&source(text), &setup(), &mut host).unwrap();
    assert_eq!(host.statements, ["A", "B", "C", "D"]);
    prepare(&source("function event() end"), &setup(), &mut Fake::default()).unwrap();
}

#[test]
fn general_options_of_sysbench_have_the_values_of_the_run() {
    let text = "
        function thread_init()
           local opt = sysbench.opt
           print(opt.threads, opt.time, opt.db_driver, opt.db_ps_mode, opt.rand_type, opt.verbosity)
           print(opt.mysql_host[1], opt.mysql_port[1], #opt.mysql_socket, opt.mysql_user, opt.mysql_db)
           print(table.concat(opt.mysql_ignore_errors, ' '), opt.pgsql_db, opt.validate, opt.histogram)
        end
        function event() end";
    let access = Access {
        host: "db1".to_owned(),
        port: Some(3307),
        database: "dbdyno".to_owned(),
        sends_text: true,
        ..Access::default()
    };
    let options = ["mysql_ignore_errors=1062, 1213", "validate=on", "rand_type=pareto"];
    let options = options.into_iter().filter_map(|one| one.split_once('=')).map(|(name, value)| {
        (name.to_owned(), dbdyno_scripts::OptionValue::Text(value.to_owned()))
    });
    let setup = Setup { access: Arc::new(access), options: options.collect(), ..setup() };
    let mut host = Fake::default();
    Client::start(&source(text), &setup, &mut host).unwrap();
    let expected = [
        "2\t0\tmysql\tdisable\tpareto\t3",
        "db1\t3307\t0\tsbtest\tdbdyno",
        "1062 1213\tsbtest\ttrue\tfalse",
    ];
    assert_eq!(host.printed, expected);
}

#[test]
fn names_belong_to_versions() {
    let text = "
        function thread_init()
           local r = sysbench.rand
           print(sysbench.version, r.zipfian ~= nil, r.varstring ~= nil, r.special ~= nil, sb_rand ~= nil,
                 ffi.C.SB_CNT_MAX)
        end
        function event() end";
    for (version, expected) in [
        (Version::V1_0, "1.0.20\tfalse\tfalse\ttrue\ttrue\t6"),
        (Version::V1_1, "1.1.0\ttrue\ttrue\tfalse\tfalse\t8"),
    ] {
        let mut host = Fake::default();
        let source = Source { version, ..source(text) };
        Client::start(&source, &setup(), &mut host).unwrap();
        assert_eq!(host.printed, [expected]);
    }
}

#[test]
fn options_are_declared_and_typed() {
    let text = "
        sysbench.cmdline.options = {
           size = {'Size', 10}, ['with-dash'] = {'Dash', false}, level = {'Level', 'RC'},
           list = {'List', {'a', 'b'}}, big = {'Big', '1K', sysbench.cmdline.ARG_SIZE},
           suffix = {'Suffix'}, number = {'Number', '', sysbench.cmdline.ARG_INT},
        }
        function event()
           local o = sysbench.opt
           print(o.size, o.with_dash, o.level, o.list[1] .. o.list[2], o.big, o.threads,
              'sbtest' .. o.suffix, o.number)
        end";
    let declared = inspect(&source(text), Driver::MySql, &Options::new()).unwrap();
    let names: Vec<String> = declared.options.unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["big", "level", "list", "number", "size", "suffix", "with_dash"]);
    assert!(declared.has_event);
    let mut host = Fake::default();
    start(text, &mut host).unwrap().event(&mut host).unwrap();
    assert_eq!(host.printed, ["10\tfalse\tRC\tab\t1024\t2\tsbtest\t0"]);
}
