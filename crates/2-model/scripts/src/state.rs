//! A Lua state with a loaded script.

use std::time::Duration;

use mlua::{Function, LightUserData, Lua, LuaOptions, StdLib, Table};

use crate::calls::{Calls, Context};
use crate::error::ScriptError;
use crate::host::Host;
use crate::options::{Options, take_random};
use crate::random::{Random, Seed, UniquePosition};
use crate::source::Source;
use crate::version::Version;

const PRELUDE: &str = include_str!("prelude.lua");

/// The driver that a script sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// MariaDB and MySQL.
    MySql,
    PostgreSql,
}

impl Driver {
    /// The name in scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MySql => "mysql",
            Self::PostgreSql => "pgsql",
        }
    }
}

/// How a script is run.
#[derive(Clone, Debug)]
pub struct Setup {
    pub driver: Driver,
    /// The storage engine of tables in MySQL's words, if the candidate has one.
    pub storage_engine: Option<String>,
    /// Options of the script and of random numbers.
    pub options: Options,
    /// The client's number, from 0.
    pub client: u32,
    /// The number of clients.
    pub clients: u32,
    /// The state of the random numbers.
    pub seed: Seed,
    /// Where the client's part of the unique sequence begins.
    pub unique: UniquePosition,
    /// How long a new script may run without a statement.
    pub time_limit: Duration,
}

impl Setup {
    /// The default of [`Self::time_limit`].
    pub const TIME_LIMIT: Duration = Duration::from_secs(10);
}

/// A Lua state with a loaded script, and what its calls work on.
pub(crate) struct State {
    // Finalizers of the script may call: the state is closed first.
    main: Table,
    pub lua: Lua,
    _calls: Box<Calls>,
    context: OwnedContext,
}

/// The context, which the calls reach too while the state runs.
struct OwnedContext(*mut Context);

impl Drop for OwnedContext {
    fn drop(&mut self) {
        // SAFETY: from a box in `State::new`, and the state is closed.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl State {
    /// Loads a script for a command: runs its top level and reads its options. Statements of the top level
    /// go to `host`; `connects` is false if there may be none.
    pub fn new(
        source: &Source,
        setup: &Setup,
        command: &str,
        connects: bool,
        host: &mut dyn Host,
    ) -> Result<Self, ScriptError> {
        let mut options = setup.options.clone();
        let random = take_random(&mut options, source.version)
            .map_err(|(name, problem)| ScriptError::new(format!("option {name}: {problem}")))?;
        let random = Random::new(random, setup.seed, setup.client, setup.unique);
        let context = OwnedContext(Box::into_raw(Box::new(Context::new(random, setup.time_limit))));
        let calls = Box::new(Calls::on(context.0));
        // SAFETY: scripts may use FFI, as in sysbench; the user has chosen to run them.
        let lua = unsafe { Lua::unsafe_new_with(StdLib::ALL, LuaOptions::default()) };
        let main = Self::prelude(&lua, &calls, source, setup, &options, command, connects)?;
        let state = Self { main, lua, _calls: calls, context };
        state.enter(host);
        let loaded = state.load(source);
        state.leave();
        loaded?;
        Ok(state)
    }

    fn prelude(
        lua: &Lua,
        calls: &Calls,
        source: &Source,
        setup: &Setup,
        options: &Options,
        command: &str,
        connects: bool,
    ) -> mlua::Result<Table> {
        let settings = lua.create_table()?;
        settings.set("client", setup.client)?;
        settings.set("driver", setup.driver.name())?;
        settings.set("version", source.version.release())?;
        settings.set("is_1_1", source.version == Version::V1_1)?;
        settings.set("storage_engine", setup.storage_engine.as_deref())?;
        settings.set("command", command)?;
        settings.set("path", source.path.as_ref().unwrap_or(&source.name).as_str())?;
        settings.set("connects", connects)?;
        let given = lua.create_table()?;
        for (name, value) in options {
            given.set(name.as_str(), value.to_text())?;
        }
        settings.set("options", given)?;
        let general = lua.create_table()?;
        general.set("threads", setup.clients)?;
        general.set("num_threads", setup.clients)?;
        general.set("db_driver", setup.driver.name())?;
        general.set("events", 0)?;
        general.set("time", 0)?;
        general.set("percentile", 0)?;
        general.set("rate", 0)?;
        settings.set("general", general)?;

        let package: Table = lua.globals().get("package")?;
        package.set(
            "path",
            "./?.lua;./?/init.lua;/usr/local/share/sysbench/?.lua;/usr/share/sysbench/?.lua",
        )?;
        let preload: Table = package.get("preload")?;
        let files = lua.create_table()?;
        for module in &source.modules {
            files.set(module.file.as_str(), without_shebang(&module.text))?;
            let chunk =
                lua.load(without_shebang(&module.text)).set_name(format!("@{}", module.file));
            // A syntax error is reported where the module is required.
            match chunk.into_function() {
                Ok(function) => preload.set(module.name.as_str(), function)?,
                Err(error) => {
                    let message = ScriptError::from(error).message;
                    let fail = lua.create_function(move |_, ()| -> mlua::Result<()> {
                        Err(mlua::Error::RuntimeError(message.clone()))
                    })?;
                    preload.set(module.name.as_str(), fail)?;
                }
            }
        }
        settings.set("files", files)?;
        let pointer = LightUserData(std::ptr::from_ref(calls).cast_mut().cast());
        lua.load(PRELUDE).set_name("=dbdyno").call((pointer, settings))
    }

    fn load(&self, source: &Source) -> Result<(), ScriptError> {
        let chunk = self
            .lua
            .load(without_shebang(&source.text))
            .set_name(format!("@{}", source.name))
            .into_function()?;
        self.function("load")?.call::<()>(chunk)?;
        Ok(self.function("options")?.call::<()>(())?)
    }

    /// A function of the prelude.
    pub fn function(&self, name: &str) -> Result<Function, ScriptError> {
        Ok(self.main.get(name)?)
    }

    /// What the calls work on.
    pub fn context(&self) -> *mut Context {
        self.context.0
    }

    /// Whether this command of the script runs in each client.
    pub fn is_parallel(&self, name: &str) -> Result<bool, ScriptError> {
        Ok(self.function("is_parallel")?.call(name)?)
    }

    /// Whether the script has this function or command.
    pub fn has(&self, name: &str) -> Result<bool, ScriptError> {
        Ok(self.function("has")?.call(name)?)
    }

    /// Calls a command or function of the script; false if there is none.
    pub fn call(&self, name: &str, host: &mut dyn Host) -> Result<bool, ScriptError> {
        self.enter(host);
        let called = self.function("call").and_then(|call| Ok(call.call::<bool>(name)?));
        self.leave();
        called
    }

    pub fn enter(&self, host: &mut dyn Host) {
        // SAFETY: the state does not run, so that nothing else uses the context.
        unsafe { (*self.context.0).enter(host) }
    }

    pub fn leave(&self) {
        // SAFETY: as in `enter`.
        unsafe { (*self.context.0).leave() }
    }
}

/// The text with an empty first line in place of `#!/usr/bin/sysbench`.
fn without_shebang(text: &str) -> String {
    match text.strip_prefix('#') {
        Some(rest) => format!("--{rest}"),
        None => text.to_owned(),
    }
}
