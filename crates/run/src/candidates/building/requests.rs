//! What is asked of the builder for each candidate.

use std::collections::BTreeMap;
use std::sync::Mutex;

use dbdyno_builds::recipe::{ConfigureTool, RecipeOptions};
use dbdyno_builds::{
    BuildError, Compiler, Origin, Profiling, Request, Source, Sources, System, Variant,
};
use dbdyno_record::server::{ServerSystem, StorageEngine};
use dbdyno_spec::experiment::{self, Candidate};

use crate::candidates::variants;
use crate::progress::{Progress, RunEvent};

/// What candidates share: each compiler is examined and each source is fetched once.
pub(super) struct Requests<'a> {
    sources: Sources,
    progress: Progress<'a>,
    compilers: BTreeMap<String, Result<Compiler, BuildError>>,
    fetched: BTreeMap<(System, Origin), Result<Source, BuildError>>,
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
        let source = self.source(system_of(candidate), origin_of(&build.source)?)?;
        Ok(Request {
            source,
            variant: variant_of(build),
            compiler,
            extra_flags: build.flags.clone(),
            options: options_of(candidate, build),
            profiling: Profiling::None,
            bolt: None,
        })
    }

    fn source(&mut self, system: System, origin: Origin) -> Result<Source, BuildError> {
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

const fn of_server(system: ServerSystem) -> System {
    match system {
        ServerSystem::MariaDb => System::MariaDb,
        ServerSystem::MySql => System::MySql,
        ServerSystem::PostgreSql => System::PostgreSql,
    }
}

fn origin_of(source: &experiment::Source) -> Result<Origin, BuildError> {
    Ok(match source.clone() {
        experiment::Source::Bundled => Origin::Bundled,
        experiment::Source::Path(path) => Origin::Path { path },
        experiment::Source::Tarball { location, sha256 } => {
            // A checksum that is none was reported with its place in the file.
            let sha256 = sha256.and_then(|sha256| sha256.parse().ok());
            Origin::Tarball { location, sha256 }
        }
        experiment::Source::Git { url, revision } => Origin::Git { url, revision },
        experiment::Source::Debian { package, suite, version } => {
            Origin::Debian { package, suite, version }
        }
    })
}

fn options_of(candidate: &Candidate, build: &experiment::Build) -> RecipeOptions {
    let engine = match &candidate.system {
        experiment::System::Private(server) => server.engine,
        experiment::System::Sqlite { .. } | experiment::System::Existing(_) => None,
    };
    RecipeOptions {
        myrocks: engine == Some(StorageEngine::MyRocks),
        tool: build.configure_with.map(|tool| match tool {
            experiment::ConfigureTool::Autoconf => ConfigureTool::Autoconf,
            experiment::ConfigureTool::Meson => ConfigureTool::Meson,
        }),
        arguments: build.configure.clone(),
    }
}

fn variant_of(build: &experiment::Build) -> Variant {
    match &build.settings {
        Some(settings) => variants::defined(&build.variant, settings),
        None => Variant::by_name(&build.variant).expect("a valid experiment has known variants"),
    }
}
