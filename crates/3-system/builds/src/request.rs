//! Requests for builds, and progress events.

use std::fmt;

use dbdyno_units::Nanos;

use crate::bolt::CachedBoltProfile;
use crate::profile::Profiling;
use crate::recipe::RecipeOptions;
use crate::{BuildError, Compiler, Source, Variant};

/// A build to be made.
#[derive(Clone, Debug)]
pub struct Request {
    /// The source to compile.
    pub source: Source,
    /// The compiler settings.
    pub variant: Variant,
    pub compiler: Compiler,
    /// Flags added after the variant's own.
    pub extra_flags: Vec<String>,
    pub options: RecipeOptions,
    /// Its role in profile-guided optimization.
    pub profiling: Profiling,
    /// The profile for BOLT. Without one, a variant with BOLT is only linked for it.
    pub bolt: Option<CachedBoltProfile>,
}

impl Request {
    /// Creates a request without extra flags and with the recipe's defaults.
    #[must_use]
    pub fn new(source: Source, variant: Variant, compiler: Compiler) -> Self {
        let options = RecipeOptions::default();
        let (extra_flags, profiling) = (Vec::new(), Profiling::None);
        Self { source, variant, compiler, extra_flags, options, profiling, bolt: None }
    }
}

/// Prints `sqlite 3.50.4 as rel_o2 with gcc 12.2.0`.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, variant, compiler) = (&self.source, &self.variant, &self.compiler);
        let (name, version, engine) = (source.name(), source.version(), self.options.engine());
        write!(f, "{name} {version}{engine} as {variant} with {compiler}")?;
        if !self.extra_flags.is_empty() {
            write!(f, " and {}", self.extra_flags.join(" "))?;
        }
        match &self.bolt {
            Some(bolt) => write!(f, ", laid out by BOLT, trained on {}", bolt.trained_on()),
            None => write!(f, "{}", self.profiling),
        }
    }
}

/// Progress of a build. Equal requests share the events, which have the first request.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Another dbdyno process is making this build; this one waits for it.
    Waiting { request: &'a Request },
    /// The compiler starts.
    Started { request: &'a Request },
    /// Preparation before compiling, such as installing build dependencies.
    Preparing {
        request: &'a Request,
        /// A description.
        what: &'a str,
    },
    /// Progress of a step.
    Progress {
        request: &'a Request,
        /// The step, such as `compiling src/backend`.
        step: &'a str,
        /// Finished commands.
        done: usize,
        /// All commands of this step.
        of: usize,
    },
    /// The build is in the cache.
    Cached { request: &'a Request },
    /// The build is complete.
    Finished {
        request: &'a Request,
        /// The time for compiling and linking.
        time: Nanos,
    },
    /// The build failed.
    Failed { request: &'a Request, error: &'a BuildError },
}

/// A receiver of events, called from several threads.
pub(crate) type Progress<'a> = &'a (dyn Fn(Event<'_>) + Sync);
