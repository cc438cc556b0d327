//! What a script sends, without a database: the data that its `prepare` makes, and the statements of its events.

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::calls::Progress;
use crate::client::{Client, Setup, prepare};
use crate::files::RecordedFiles;
use crate::host::{
    Driver, Host, Outcome, Recorder, Rows, Sent, SqlError, SqlErrorKind, Value,
    seems_to_return_rows,
};
use crate::options::Options;
use crate::source::Source;

/// What `prepare` makes. Only keys of one process can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataKey {
    /// No statement: the script uses tables that others make.
    Nothing,
    Of(u64),
}

/// Finds what the `prepare` of a script makes, with each of these setups, without a database.
///
/// Two scripts have the same key if they send the same statements, and of `INSERT` as many rows: values are random.
/// Queries have no rows at first; if there are any, they have one row the second time, so that scripts have the same
/// key only if they go the same way in both cases. A script that fails both times has the key of its text and options.
/// `cancelled` ends it early, with any key.
pub fn data_key(source: &Source, setups: &[Setup], cancelled: &dyn Fn() -> bool) -> DataKey {
    let mut hasher = DefaultHasher::new();
    let mut sends = false;
    for setup in setups {
        let none = Recording::of(source, setup, Answers::NoRows, cancelled);
        let one = none.queries.then(|| Recording::of(source, setup, Answers::OneRow, cancelled));
        if none.failed && one.as_ref().is_none_or(|one| one.failed) {
            let modules: Vec<&str> = source.modules.iter().map(|one| one.text.as_str()).collect();
            let options = format!("{:?} {:?}", setup.options, source.version);
            (&source.text, modules, options).hash(&mut hasher);
            sends = true;
        }
        for recording in std::iter::once(none).chain(one) {
            sends |= recording.sends;
            (recording.failed, recording.fingerprint).hash(&mut hasher);
        }
    }
    if sends { DataKey::Of(hasher.finish()) } else { DataKey::Nothing }
}

/// What queries return while nothing is executed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    NoRows,
    OneRow,
}

/// Columns of the row that queries return.
const COLUMNS: usize = 16;

/// Queries without another statement between them, after which a script is taken to wait for an answer.
const MOST_QUERIES: u32 = 1000;

struct Recording {
    fingerprint: u64,
    sends: bool,
    queries: bool,
    failed: bool,
}

impl Recording {
    fn of(source: &Source, setup: &Setup, answers: Answers, cancelled: &dyn Fn() -> bool) -> Self {
        let mut fingerprint = Fingerprint::default();
        let mut add = |sql: &str| fingerprint.add(sql);
        let mut recorder = AnsweringRecorder::new(answers, cancelled, &mut add);
        let failed = prepare(source, setup, &mut recorder).is_err();
        let queries = recorder.queries;
        Self { sends: fingerprint.is_used, fingerprint: fingerprint.finish(), queries, failed }
    }
}

/// Events whose statements are recorded, and bytes of the statements of `prepare`.
const EVENTS: u32 = 100;
const BYTES: usize = 1 << 20;

/// The first statements of a script, on MySQL and on PostgreSQL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstStatements {
    pub of_prepare: Vec<String>,
    pub of_events: Vec<String>,
}

impl FirstStatements {
    /// No statement is executed: queries have one row. The statements end where the script needs another answer.
    /// `options` are those of `prepare`.
    pub fn of(source: &Source, options: &Options, of_events: &Options) -> Self {
        let mut first = Self::default();
        for driver in [Driver::MySql, Driver::PostgreSql] {
            let setup = Setup { restricted: false, ..Setup::restricted(driver, options) };
            let bytes = Cell::new(0);
            let is_enough = || bytes.get() > BYTES;
            let mut add = |sql: &str| {
                bytes.set(bytes.get() + sql.len());
                first.of_prepare.push(sql.to_owned());
            };
            let mut recorder = AnsweringRecorder::new(Answers::OneRow, &is_enough, &mut add);
            // An error ends it early.
            let _ = prepare(source, &setup, &mut recorder);
            let files = recorder.files;
            let setup = Setup { options: of_events.clone(), ..setup };
            first.of_events.extend(events(source, &setup, files));
        }
        first
    }
}

fn events(source: &Source, setup: &Setup, files: RecordedFiles) -> Vec<String> {
    let statements = RefCell::new(Vec::new());
    let bytes = Cell::new(0);
    let is_enough = || bytes.get() > BYTES;
    let mut add = |sql: &str| {
        bytes.set(bytes.get() + sql.len());
        if !is_enough() {
            statements.borrow_mut().push(sql.to_owned());
        }
    };
    let recorder = AnsweringRecorder::new(Answers::OneRow, &is_enough, &mut add);
    let mut recorder = AnsweringRecorder { files, ..recorder };
    if let Ok(mut client) = Client::start(source, setup, &mut recorder) {
        // Those of `thread_init`.
        statements.borrow_mut().clear();
        bytes.set(0);
        let mut is_event = || {
            let progress = client.event(&mut recorder);
            matches!(progress, Ok(Progress::Event | Progress::Sleeping))
        };
        let _ = (0..EVENTS).all(|_| is_event());
    }
    statements.into_inner()
}

/// Executes nothing, changes no files, and passes the statements on.
struct AnsweringRecorder<'a> {
    answers: Answers,
    cancelled: &'a dyn Fn() -> bool,
    add: &'a mut dyn FnMut(&str),
    prepared: Recorder,
    /// Whether the last query has a row that was not taken.
    row: bool,
    queries: bool,
    queries_in_a_row: u32,
    files: RecordedFiles,
}

impl<'a> AnsweringRecorder<'a> {
    fn new(
        answers: Answers,
        cancelled: &'a dyn Fn() -> bool,
        add: &'a mut dyn FnMut(&str),
    ) -> Self {
        let (prepared, files) = (Recorder::default(), RecordedFiles::default());
        let (row, queries, queries_in_a_row) = (false, false, 0);
        Self { answers, cancelled, add, prepared, row, queries, queries_in_a_row, files }
    }

    fn send(&mut self, sql: &str) -> Sent {
        (self.add)(sql);
        let is_query = seems_to_return_rows(sql.as_bytes());
        self.queries |= is_query;
        self.queries_in_a_row = if is_query { self.queries_in_a_row + 1 } else { 0 };
        if (self.cancelled)() || self.queries_in_a_row > MOST_QUERIES {
            return Sent::Done(Err(SqlError::new("nothing is executed", SqlErrorKind::Lost)));
        }
        self.row = is_query && self.answers == Answers::OneRow;
        Sent::Done(Ok(Outcome { has_rows: is_query, rows: self.row.into() }))
    }
}

impl Host for AnsweringRecorder<'_> {
    fn prepare(&mut self, sql: &[u8]) -> Result<u32, SqlError> {
        self.prepared.prepare(sql)
    }

    fn execute(&mut self, statement: u32, values: &[Value<'_>]) -> Sent {
        // It records the statement with its values, and always succeeds.
        let _ = self.prepared.execute(statement, values);
        let sql = self.prepared.statements.pop().unwrap_or_default();
        self.send(&sql)
    }

    fn query(&mut self, sql: &[u8]) -> Sent {
        self.send(&String::from_utf8_lossy(sql))
    }

    fn take_rows(&mut self) -> Rows {
        let row = vec![Some(b"1".to_vec()); COLUMNS];
        if std::mem::take(&mut self.row) { vec![row] } else { Rows::new() }
    }

    fn files(&mut self) -> Option<&mut RecordedFiles> {
        Some(&mut self.files)
    }
}

fn is_insert(sql: &str) -> bool {
    sql.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("insert"))
}

/// The hash of what statements create: of `INSERT`, the number of rows.
#[derive(Default)]
struct Fingerprint {
    hasher: DefaultHasher,
    is_used: bool,
    /// The table that rows are inserted into, and their number.
    table: String,
    rows: u64,
}

impl Fingerprint {
    fn add(&mut self, statement: &str) {
        self.is_used = true;
        match statement.split_once("VALUES") {
            Some((table, rows)) if is_insert(table) => {
                // Rows of one table are split into statements by their random size.
                if self.table != table {
                    (self.rows, table).hash(&mut self.hasher);
                    (self.rows, self.table) = (0, table.to_owned());
                }
                self.rows += rows_of(rows);
            }
            _ => {
                (self.rows, statement).hash(&mut self.hasher);
                (self.rows, self.table) = (0, String::new());
            }
        }
    }

    fn finish(&mut self) -> u64 {
        self.rows.hash(&mut self.hasher);
        self.hasher.finish()
    }
}

/// The number of rows behind `VALUES`: parentheses that are neither within others nor within a text.
fn rows_of(values: &str) -> u64 {
    let (mut rows, mut depth, mut quote) = (0, 0_u32, None);
    let mut bytes = values.bytes();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(_), b'\\') => drop(bytes.next()),
            (Some(open), _) => quote = quote.filter(|_| byte != open),
            (None, b'\'' | b'"' | b'`') => quote = Some(byte),
            (None, b'(') => {
                rows += u64::from(depth == 0);
                depth += 1;
            }
            (None, b')') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::random::{Seed, UniquePosition};

    fn key(prepare: &str) -> DataKey {
        key_with(prepare, 1)
    }

    fn key_with(prepare: &str, clients: u32) -> DataKey {
        let text = format!(
            "function prepare() con = sysbench.sql.driver():connect() {prepare} end\n\
             function event() end"
        );
        let source = Source::new("a.lua", text, |_| None).unwrap();
        let setup = Setup {
            driver: Driver::MySql,
            storage_engine: None,
            access: Arc::default(),
            options: Options::new(),
            client: 0,
            clients,
            seed: Seed::of(&[1]),
            unique: UniquePosition::default(),
            time_limit: Setup::TIME_LIMIT,
            restricted: false,
        };
        data_key(&source, &[setup], &|| false)
    }

    fn inserts(statements: &[&str]) -> DataKey {
        let queries = statements.iter().map(|sql| format!("con:query('{sql}') "));
        key(&queries.collect::<String>())
    }

    #[test]
    fn data_with_the_same_tables_and_numbers_of_rows_is_the_same() {
        let create = "CREATE TABLE a (i INT)";
        let one = inserts(&[create, "INSERT INTO a VALUES (1),(2)"]);
        assert_eq!(one, inserts(&[create, "INSERT INTO a VALUES (3),(9)"]));
        assert_eq!(one, inserts(&[create, "INSERT INTO a VALUES (ABS(3)), (\"),(\")"]));
        assert_eq!(one, inserts(&[create, "INSERT INTO a VALUES (1)", "INSERT INTO a VALUES (2)"]));
        for other in [
            inserts(&["CREATE TABLE b (i INT)", "INSERT INTO a VALUES (1),(2)"]),
            inserts(&[create, "INSERT INTO a VALUES (1)"]),
            inserts(&[create, "INSERT INTO a VALUES (1), (2), (3)"]),
            inserts(&[create, "INSERT INTO b VALUES (1),(2)"]),
            inserts(&[create]),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(key(""), DataKey::Nothing);
    }

    #[test]
    fn prepare_that_reads_answers_is_compared_in_both_cases() {
        let reads = |then: &str| {
            key(&format!(
                "local rs = con:query('SHOW VARIABLES')
                 con:query('CREATE TABLE a (i INT)')
                 if rs.nrows > 0 then {then} end"
            ))
        };
        let index = "con:query('CREATE INDEX i ON a (i)')";
        assert_eq!(reads(index), reads(&format!("{index} --[[ other text ]]")));
        assert_ne!(reads(index), reads("con:query('CREATE INDEX j ON a (i)')"));
        let row = |name: &str| {
            key(&format!(
                "local value = con:query_row('SELECT 1') con:query('CREATE TABLE {name}' .. value)"
            ))
        };
        assert_eq!(row("a"), row("a"));
        assert_ne!(row("a"), row("b"));
    }

    #[test]
    fn prepare_that_needs_the_rows_it_wrote_has_the_key_of_its_text() {
        let needs = |rows: &str| {
            key(&format!(
                "con:query('CREATE TABLE a (i INT)')
                 assert(con:query_row('SELECT COUNT(*) FROM a') == '{rows}')"
            ))
        };
        assert_eq!(needs("20"), needs("20"));
        assert_ne!(needs("20"), needs("30"));
    }

    #[test]
    fn statements_of_the_first_events_are_known() {
        let text =
            "function prepare() sysbench.sql.driver():connect():query('CREATE TABLE t (a INT)') end
                    function thread_init()
                       con = sysbench.sql.driver():connect()
                       con:query('SELECT 1')
                    end
                    function event()
                       local a = con:query_row('SELECT a FROM t')
                       con:query('UPDATE t SET a = ' .. a + 1)
                    end";
        let source = Source::new("a.lua", text.to_owned(), |_| None).unwrap();
        let first = FirstStatements::of(&source, &Options::new(), &Options::new());
        assert_eq!(first.of_prepare, ["CREATE TABLE t (a INT)"; 2]);
        assert_eq!(first.of_events[..2], ["SELECT a FROM t", "UPDATE t SET a = 2"]);
        assert_eq!(first.of_events.len(), 2 * 2 * EVENTS as usize);
    }

    #[test]
    fn recorded_script_reads_the_files_that_it_wrote_and_leaves_those_on_disk() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["state", "log"] {
            std::fs::write(directory.path().join(name), "old").unwrap();
        }
        let text = format!(
            "ffi.cdef('int system(const char *); int run(const char *) __asm__(\"system\");')
            ffi.cdef('int getpid(); enum {{ LIMIT = 7 }};')
            local at = '{}/'
            local function read(name)
               local file = io.open(at .. name)
               return file and file:read('*a')
            end
            function prepare()
               local con = sysbench.sql.driver():connect()
               local file = io.open(at .. 'state', 'w')
               file:write(con:query_row('SELECT MAX(id) FROM t'), '\\n')
               file:close()
               file = io.open(at .. './log', 'a+') file:write(' and new') file:close()
               assert(read('log') == 'old and new' and io.lines(at .. 'log')() == 'old and new')
               file = io.open(at .. 'log', 'r+') file:write('OLD') file:close()
               assert(os.rename(at .. 'log', at .. 'moved'))
               assert(read('log') == nil and read('moved') == 'OLD and new')
               assert(os.remove(at .. 'moved') and not os.remove(at .. 'moved'))
               assert(not io.open(at .. 'moved', 'r+') and not os.rename(at .. 'log', at .. 'moved'))
               io.output(at .. 'output') io.write('a') io.close()
               assert(read('output') == 'a')
               local name = os.tmpname()
               assert(os.remove(name) and io.open(name) == nil)
               assert(os.execute('touch ' .. at .. 'touched') == 0)
               assert(io.popen('touch ' .. at .. 'touched'):read() == nil)
               for _, run in ipairs({{ ffi.C.system, ffi.C.run, ffi.load('c').system, package.loadlib }}) do
                  local done, problem = pcall(run, 'touch ' .. at .. 'touched')
                  assert(not done and problem:find('the script needs a run'))
               end
               assert(ffi.C.getpid() > 0 and ffi.C.LIMIT == 7 and ffi.load('c').LIMIT == 7)
               con:query('END')
            end
            function thread_init()
               con = sysbench.sql.driver():connect()
               last = tonumber(io.open(at .. 'state'):read('*l'))
            end
            function event() con:query('SELECT k FROM t WHERE id = ' .. last) end
            function thread_done()
               os.execute('touch ' .. at .. 'touched')
               os.remove(at .. 'state')
               io.open(at .. 'log', 'w')
            end",
            directory.path().display()
        );
        let source = Source::new("a.lua", text, |_| None).unwrap();
        let first = FirstStatements::of(&source, &Options::new(), &Options::new());
        let of_prepare = ["SELECT MAX(id) FROM t", "END"];
        assert_eq!(first.of_prepare, [of_prepare, of_prepare].concat());
        assert_eq!(first.of_events[0], "SELECT k FROM t WHERE id = 1");
        let files = std::fs::read_dir(directory.path()).unwrap();
        let mut files: Vec<(String, String)> = files
            .map(|file| {
                let file = file.unwrap();
                let text = std::fs::read_to_string(file.path()).unwrap();
                (file.file_name().into_string().unwrap(), text)
            })
            .collect();
        files.sort();
        assert_eq!(files, ["log", "state"].map(|name| (name.to_owned(), "old".to_owned())));
    }

    #[test]
    fn prepare_that_waits_for_a_row_ends() {
        let waits = "repeat local rs = con:query('SELECT 1 FROM done') until rs.nrows == 2";
        assert_eq!(key_with(waits, 3), key_with(waits, 3));
    }
}
