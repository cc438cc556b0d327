//! Sampling during training: how often the code of a build was executed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use dbdyno_builds::{BoltSamples, Build, SampledCode};
use dbdyno_live::{LiveError, LoadedModule, Maps, SamplingOptions, sample};
use dbdyno_relayout::{BoltProfile, Branch, Executions, FallThrough, Module, ModuleError, Samples};

/// Samples per second and CPU: high because training is short, but low enough that the kernel does
/// not take most of the time.
const FREQUENCY: u32 = 7_999;

/// With fewer samples, most functions have none.
const LEAST_SAMPLES: u64 = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum SamplingError {
    /// Sampling failed. The process is one of dbdyno's own, so its number is left out.
    #[error("{}", without_process(.0))]
    Live(#[from] LiveError),
    #[error("the sampling thread panicked")]
    Panicked,
    #[error(
        "only {found} of {total} samples are in the build's own code, fewer than {LEAST_SAMPLES}: \
         train longer (`training_time`) or on more microbenchmarks"
    )]
    TooFew {
        /// Samples in the build's code.
        found: u64,
        total: u64,
    },
    /// The file to optimize was not in the process.
    #[error("{} was not loaded", .0.display())]
    NotLoaded(PathBuf),
    /// A file could not be read.
    #[error("reading {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The machine code of a file could not be read.
    #[error("{}: {source}", path.display())]
    Module { path: PathBuf, source: ModuleError },
    /// A file of samples could not be written or read.
    #[error("the file of samples: {0}")]
    Format(#[from] serde_json::Error),
    /// Another candidate's samples cannot be used.
    #[error("the samples of `{candidate}`: {source}")]
    Reused {
        candidate: String,
        /// Why not.
        source: Box<SamplingError>,
    },
    /// Another candidate has no samples, or this one has no build.
    #[error("there are none: both candidates must be compiled for the run, the other with BOLT")]
    NoSamples,
    /// Another candidate's samples are of another build.
    #[error("they are not of build {0}")]
    OtherBuild(String),
}

fn without_process(error: &LiveError) -> String {
    match error {
        LiveError::Refused { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

/// The process to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampledProcess {
    pub pid: u32,
    /// Whether its descendants are sampled, too.
    pub family: bool,
}

/// Checks that this machine permits sampling, and that dbdyno can read its machine code.
pub(crate) fn check_permitted() -> Result<(), SamplingError> {
    dbdyno_live::check_platform()?;
    let options = SamplingOptions {
        time: Duration::from_millis(1),
        frequency: FREQUENCY,
        ..SamplingOptions::default()
    };
    sample(std::process::id(), false, &options, |_| true)?;
    Ok(())
}

/// The samples of a process, and where its files are mapped.
pub(crate) struct ProcessSamples {
    samples: Samples,
    loaded: Vec<LoadedModule>,
}

/// Runs `work` while the process is sampled. The outer error is that of `work`.
pub(crate) fn sample_while<E>(
    process: SampledProcess,
    work: impl FnOnce() -> Result<(), E>,
) -> Result<Result<ProcessSamples, SamplingError>, E> {
    let options =
        SamplingOptions { time: Duration::MAX, frequency: FREQUENCY, ..SamplingOptions::default() };
    let done = AtomicBool::new(false);
    let (worked, sampled) = thread::scope(|scope| {
        let until = |_| done.load(Ordering::Relaxed);
        let sampler = scope.spawn(move || sample(process.pid, process.family, &options, until));
        let worked = work();
        done.store(true, Ordering::Relaxed);
        (worked, sampler.join())
    });
    worked?;
    let samples = || -> Result<_, SamplingError> {
        let samples = sampled.map_err(|_| SamplingError::Panicked)??.samples;
        let loaded = dbdyno_live::Module::loaded(&Maps::of(process.pid)?);
        Ok(ProcessSamples { samples, loaded })
    };
    Ok(samples())
}

impl ProcessSamples {
    /// How often the code of a build was executed, per file.
    pub fn executed(&self, build: &Build) -> Result<Vec<SampledCode>, SamplingError> {
        // The kernel reports paths without symbolic links.
        let folder = fs::canonicalize(&build.folder).unwrap_or_else(|_| build.folder.clone());
        let mut all = Vec::new();
        for loaded in self.loaded.iter().filter(|loaded| loaded.path.starts_with(&folder)) {
            let code = executed(loaded, &self.samples)?;
            if code.samples > 0 {
                all.push(code);
            }
        }
        self.check(all.iter().map(|code| code.samples).sum())?;
        Ok(all)
    }

    /// The samples in the artifact of a build, for BOLT and for the live optimizer.
    pub fn for_bolt(&self, build: &Build) -> Result<BoltSamples, SamplingError> {
        let artifact = &build.artifact;
        let path = fs::canonicalize(artifact).unwrap_or_else(|_| artifact.clone());
        let loaded = self.loaded.iter().find(|loaded| loaded.path == path);
        let loaded = loaded.ok_or_else(|| SamplingError::NotLoaded(artifact.clone()))?;
        let module = parse(loaded)?;
        let samples = in_file(loaded, bias(loaded, &module), &self.samples);
        let profile = BoltProfile::new(&module, &samples);
        self.check(profile.written)?;
        let for_live = serde_json::to_string(&samples.to_profile(&[&module]))?;
        Ok(BoltSamples { text: profile.text, samples: profile.written, for_live })
    }

    fn check(&self, found: u64) -> Result<(), SamplingError> {
        if found >= LEAST_SAMPLES {
            return Ok(());
        }
        Err(SamplingError::TooFew { found, total: self.samples.total() })
    }
}

fn executed(loaded: &LoadedModule, samples: &Samples) -> Result<SampledCode, SamplingError> {
    let module = parse(loaded)?;
    let executions = Executions::of(&module, &in_file(loaded, bias(loaded, &module), samples));
    Ok(SampledCode {
        file: PathBuf::from(&loaded.path),
        samples: executions.samples,
        ranges: executions.ranges.iter().map(|(it, count)| (it.first, it.last, *count)).collect(),
        calls: executions.calls.iter().map(|(call, count)| (call.from, call.to, *count)).collect(),
    })
}

/// The machine code of a loaded file, at link-time addresses.
fn parse(loaded: &LoadedModule) -> Result<Module, SamplingError> {
    let path = || loaded.path.clone();
    let file =
        fs::read(&loaded.path).map_err(|source| SamplingError::Io { path: path(), source })?;
    let name = loaded.path.display().to_string();
    Module::parse(&name, &file, 0).map_err(|source| SamplingError::Module { path: path(), source })
}

/// The difference between addresses in memory and link-time addresses.
fn bias(loaded: &LoadedModule, module: &Module) -> u64 {
    const PAGE: u64 = 4096;
    loaded.range.start.wrapping_sub(module.extent().start / PAGE * PAGE)
}

/// The samples in a loaded file, at link-time addresses.
fn in_file(loaded: &LoadedModule, bias: u64, samples: &Samples) -> Samples {
    let is_inside = |address: &u64| loaded.range.contains(address);
    let mut own = Samples::default();
    for (&address, &count) in samples.hits().iter().filter(|(address, _)| is_inside(address)) {
        own.add_hit(address.wrapping_sub(bias), count);
    }
    for (branch, &count) in samples.branches() {
        if is_inside(&branch.from) && is_inside(&branch.to) {
            let (from, to) = (branch.from.wrapping_sub(bias), branch.to.wrapping_sub(bias));
            own.add_branch(Branch { from, to }, count);
        }
    }
    for (code, &count) in samples.fall_throughs() {
        if is_inside(&code.first) && is_inside(&code.last) {
            let (first, last) = (code.first.wrapping_sub(bias), code.last.wrapping_sub(bias));
            own.add_fall_through(FallThrough { first, last }, count);
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_mapped_to_addresses_in_their_file() {
        let loaded =
            LoadedModule { path: "/lib".into(), range: 0x7000..0x9000, mappings: Vec::new() };
        let mut samples = Samples::default();
        for (address, count) in [(0x6fff, 1), (0x7000, 2), (0x8fff, 3), (0x9000, 4)] {
            samples.add_hit(address, count);
        }
        let own = in_file(&loaded, 0x6000, &samples);
        assert_eq!(own.total(), 5);
        assert_eq!(own.hits().get(&0x1000), Some(&2));
        assert_eq!(own.hits().get(&0x2fff), Some(&3));
    }
}
