//! The build request of each candidate.

use std::collections::BTreeMap;
use std::sync::Mutex;

use dbdyno_builds::RecipeOptions;
use dbdyno_builds::{
    BuildError, Compiler, Profiling, Request, Source, SourceOrigin, Sources, System,
};
use dbdyno_spec::experiment::{self, Candidate};
use dbdyno_types::server::{ServerSystem, StorageEngine};

use crate::progress::{Progress, RunEvent};

/// What candidates share: each compiler is examined and each source is fetched once.
pub(super) struct Requests<'a> {
    sources: Sources,
    progress: Progress<'a>,
    compilers: BTreeMap<String, Result<Compiler, BuildError>>,
    fetched: BTreeMap<(System, SourceOrigin), Result<Source, BuildError>>,
}

impl<'a> Requests<'a> {
    pub const fn new(sources: Sources, progress: Progress<'a>) -> Self {
        Self { sources, progress, compilers: BTreeMap::new(), fetched: BTreeMap::new() }
    }

    pub fn request(
        &mut self,
        candidate: &Candidate,
        build: &experiment::Build,
    ) -> Result<Request, BuildError> {
        let compiler = self.compilers.entry(build.compiler.clone());
        let compiler = compiler.or_insert_with(|| Ok(Compiler::find(&build.compiler)?)).clone()?;
        let source = self.source(system_of(candidate), build.source.clone())?;
        let variant = build.resolved_variant()?;
        Ok(Request {
            source,
            variant,
            compiler,
            extra_flags: build.flags.clone(),
            options: options_of(candidate, build),
            profiling: Profiling::None,
            bolt: None,
        })
    }

    fn source(&mut self, system: System, origin: SourceOrigin) -> Result<Source, BuildError> {
        let progress = Mutex::new(self.progress);
        let say = |line: String| {
            if let Ok(progress) = progress.lock() {
                progress(RunEvent::Stage(line));
            }
        };
        let key = (system, origin);
        if let Some(known) = self.fetched.get(&key) {
            return known.clone();
        }
        let fetched = self.sources.obtain(system, &key.1, &say);
        self.fetched.insert(key, fetched.clone());
        fetched
    }
}

const fn system_of(candidate: &Candidate) -> System {
    match &candidate.system {
        experiment::System::Sqlite { .. } => System::Sqlite,
        experiment::System::Private(server) => of_server(server.system),
        experiment::System::Existing(server) => of_server(server.system),
    }
}

/// The program that dbdyno compiles or unpacks.
pub(crate) const fn of_server(system: ServerSystem) -> System {
    match system {
        ServerSystem::MariaDb => System::MariaDb,
        ServerSystem::MySql => System::MySql,
        ServerSystem::PostgreSql => System::PostgreSql,
    }
}

fn options_of(candidate: &Candidate, build: &experiment::Build) -> RecipeOptions {
    let engine = match &candidate.system {
        experiment::System::Private(server) => server.engine,
        experiment::System::Sqlite { .. } | experiment::System::Existing(_) => None,
    };
    RecipeOptions {
        myrocks: engine == Some(StorageEngine::MyRocks),
        tool: build.configure_with,
        arguments: build.configure.clone(),
    }
}
