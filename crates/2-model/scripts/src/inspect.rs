//! What a script declares, found by loading it.

use mlua::Table;

use crate::calls::Progress;
use crate::client::{Client, Setup, State, Use};
use crate::error::ScriptError;
use crate::host::{Driver, Recorder};
use crate::options::{Declared, OptionKind, OptionProblem, Options, check_option};
use crate::source::{Source, Version};

/// Loads a script without a database, with these options. Nothing is executed: see [`Setup::restricted`].
///
/// # Errors
/// Loading fails; [`ScriptError::needs_run`] if something else must be executed for it.
pub fn inspect(
    source: &Source,
    driver: Driver,
    options: &Options,
) -> Result<Declared, ScriptError> {
    declared(source, &Setup::restricted(driver, options))
}

/// Loads a script in a run, where it may do anything, and checks that it has `event` and these options.
pub fn check_in_run(source: &Source, options: &Options) -> Result<(), String> {
    let load = |options: &Options| {
        let setup = Setup { restricted: false, ..Setup::restricted(Driver::MySql, options) };
        declared(source, &setup).map_err(|error| error.to_string())
    };
    let declared = load(&Options::new())?;
    let name = &source.name;
    if !declared.has_event {
        return Err(format!("{name} has no function event()"));
    }
    for option in options.keys() {
        check_option(option, &declared).map_err(|problem| match problem {
            OptionProblem::Replaced(instead) => {
                format!("option `{option}` of sysbench has no effect here: {instead}")
            }
            OptionProblem::Unknown(_) => format!("{name} has no option `{option}`"),
        })?;
    }
    load(options).map(drop)
}

fn declared(source: &Source, setup: &Setup) -> Result<Declared, ScriptError> {
    let state = State::new(source, setup, "run", Use::Inspection, &mut Recorder::default())?;
    let cmdline: Table = state.lua.globals().get::<Table>("sysbench")?.get("cmdline")?;
    let declares = !cmdline.get::<mlua::Value>("options")?.is_nil();
    let declared: Table = state.function("declared")?.call(())?;
    let mut names = Vec::new();
    for pair in declared.pairs::<String, Table>() {
        let (name, option) = pair?;
        let kind = match option.get::<u32>("kind")? {
            1 => OptionKind::Bool,
            2..=4 => OptionKind::Number,
            _ => OptionKind::Text,
        };
        names.push((name, kind));
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Declared {
        options: (declares || source.version == Version::V1_1).then_some(names),
        has_event: state.has("event")?,
        version: source.version,
    })
}

/// Events that [`only_reads`] runs.
const EVENTS: u32 = 500;

/// Whether the first events of a script send only queries without locks and statements of transactions. Nothing
/// is executed: false for a script that needs answers.
pub fn only_reads(source: &Source, options: &Options) -> bool {
    let mut recorder = Recorder::default();
    let setup = Setup::restricted(Driver::MySql, options);
    let Ok(mut client) = Client::start(source, &setup, &mut recorder) else { return false };
    recorder.statements.clear();
    (0..EVENTS).all(|_| {
        matches!(client.event(&mut recorder), Ok(Progress::Event | Progress::Sleeping))
            && recorder.statements.drain(..).all(|sql| reads(&sql))
    })
}

/// Whether a text changes and locks nothing. Of one with several statements, it is not known.
fn reads(sql: &str) -> bool {
    if sql.trim_end_matches(|c: char| c == ';' || c.is_whitespace()).contains(';') {
        return false;
    }
    let sql = sql.to_ascii_lowercase();
    let mut words = sql.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    match words.next() {
        Some("select") => !words.any(|word| matches!(word, "into" | "update" | "share" | "lock")),
        Some("begin" | "start" | "commit" | "rollback" | "set" | "show") => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OptionValue;

    #[test]
    fn scripts_that_write_or_need_answers_do_not_only_read() {
        let only_reads_event = |event: &str| {
            let text = format!(
                "function thread_init() con = sysbench.sql.driver():connect() end
                 function event() {event} end"
            );
            only_reads(&Source::new("a.lua", text, |_| None).unwrap(), &Options::new())
        };
        assert!(only_reads_event("con:query('BEGIN') con:query('SELECT 1; ') con:query('COMMIT')"));
        for event in [
            "con:query('SELECT a FROM t FOR UPDATE')",
            "con:query('INSERT INTO t VALUES (1)')",
            "con:query('BEGIN; UPDATE t SET a = 1; COMMIT')",
            "i = (i or 0) + 1 if i % 100 == 0 then con:query('UPDATE t SET a = 1') end",
            "assert(con:query_row('SELECT 1'))",
            "return true",
        ] {
            assert!(!only_reads_event(event), "{event}");
        }
    }

    fn load(text: &str) -> Result<Declared, ScriptError> {
        let source = Source::new("a.lua", text.to_owned(), |_| None).unwrap();
        inspect(&source, Driver::MySql, &Options::new())
    }

    #[test]
    fn restricted_script_neither_executes_nor_writes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "old").unwrap();
        let name = file.display();
        for attack in [
            &*format!("os.execute('echo new > {name}')"),
            &*format!("io.popen('echo new > {name}'):close()"),
            &*format!("io.open('{name}', 'w')"),
            &*format!("io.open('{name}', 'r+')"),
            &*format!("io.output('{name}')"),
            &*format!("os.remove('{name}')"),
            &*format!("os.rename('{name}', '{name}.new')"),
            "os.tmpname()",
            "io.tmpfile()",
            "package.loadlib('libc.so.6', 'system')",
            "ffi.load('c')",
            "ffi.cast('char *', 0)",
            "require('ffi').new('int[1]')",
            "ffi.cdef('int system(const char *);') ffi.C.system('true')",
            "ffi.C.poll('file', 1, 0)",
            "ffi.C.nanosleep('time')",
            "ffi.C.sb_rand_str('###', 1)",
            "debug.getupvalue(sysbench.rand.string, 1)",
            "debug.getregistry()",
            "package.loaded.debug.sethook()",
            "require('jit.util').funcinfo(print)",
            "require('string.buffer').new():ref()",
            "package.path = '/?' require(('etc/').. 'passwd')",
        ] {
            let error = load(attack).unwrap_err();
            assert!(error.needs_run(), "{attack}: {error}");
            assert_eq!(error.position(), Some(("a.lua", 1)), "{attack}: {error}");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn restricted_script_gets_no_pointers_and_no_binary_code() {
        for text in [
            "assert(load(string.dump(function() end)) == nil)",
            "assert(loadstring(string.dump(function() end)) == nil)",
            "assert(getmetatable(ffi) == false and getmetatable(debug) == false)",
            "for _, lib in pairs(package.loaded) do for _, f in pairs(lib) do assert(type(f) ~= 'cdata') end end",
            "io.open('/dev/null'):close() os.execute('sleep 0') io.popen('sleep 0'):close()",
            "jit.off() ffi.cdef('int usleep(int);') assert(ffi.C.usleep(0) == 0)",
        ] {
            load(&format!("{text} function event() end")).unwrap();
        }
        // It would be written to memory after a buffer of one byte.
        let liar = "local proxy, count = newproxy(true), 0
            getmetatable(proxy).__len = function() count = count + 1 return count == 1 and 1 or 2 ^ 30 end
            sysbench.rand.string(proxy)";
        assert!(load(liar).unwrap_err().message.contains("a string is needed"));
        let parameters = "function thread_init()
               local statement = sysbench.sql.driver():connect():prepare('SELECT ?')
               local one = statement:bind_create(sysbench.sql.type.CHAR, 3)
               assert(type(one) == 'table' and one.buffer == nil and getmetatable(one) == false)
               one.max_len = 2 ^ 40
               one:set(('x'):rep(100))
               statement:bind_param(one)
               statement:execute()
               assert(not pcall(statement.bind_param, statement, { type = 12, buffer = 'x' }))
            end
            function event() end";
        let source = Source::new("a.lua", parameters.to_owned(), |_| None).unwrap();
        let mut recorder = Recorder::default();
        Client::start(&source, &Setup::restricted(Driver::MySql, &Options::new()), &mut recorder)
            .unwrap();
        assert_eq!(recorder.statements, ["SELECT 'xxx'"]);
    }

    #[test]
    fn script_that_needs_a_run_is_checked_in_it() {
        let check = |text: &str| {
            let source = Source::new("a.lua", text.to_owned(), |_| None).unwrap();
            let options = Options::from([("tables".to_owned(), OptionValue::Int(1))]);
            check_in_run(&source, &options)
        };
        let options = "os.execute('true') sysbench.cmdline.options = { tables = {'', 1} }";
        check(&format!("{options} function event() end")).unwrap();
        assert!(check(options).unwrap_err().contains("no function event()"));
        let other = check("sysbench.cmdline.options = {} function event() end");
        assert_eq!(other.unwrap_err(), "a.lua has no option `tables`");
    }
}
