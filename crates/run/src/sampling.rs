//! SamplingOptions what is trained: which code of a build was executed how often.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dbdyno_builds::{BoltSamples, Build, SampledCode};
use dbdyno_live::{LiveError, LoadedModule, Maps, SamplingOptions, sample};
use dbdyno_relayout::{BoltProfile, Branch, Executions, Module, Samples};

/// Samples per second and CPU: many, since training is short, and few enough that the program
/// does its work rather than the kernel.
const FREQUENCY: u32 = 7_999;

/// Fewer tell nothing of most functions.
const LEAST_SAMPLES: u64 = 1_000;

/// The process that is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub pid: u32,
    /// With all that descend from it.
    pub family: bool,
}

/// Whether this machine permits sampling; else why not, and what to try.
pub(crate) fn check_permitted() -> Result<(), String> {
    let moment = SamplingOptions { time: Duration::from_millis(1), frequency: FREQUENCY };
    sample(std::process::id(), false, &moment, |_| true).map(drop).map_err(reason)
}

/// What ran of a process, and where its files are in memory.
pub(crate) struct Observed {
    samples: Samples,
    loaded: Vec<LoadedModule>,
}

/// Does `work` while the process is sampled. The outer error is that of the work.
pub(crate) fn sample_while<E>(
    process: Process,
    work: impl FnOnce() -> Result<(), E>,
) -> Result<Result<Observed, String>, E> {
    // It ends with the work.
    let sampling = SamplingOptions { time: Duration::MAX, frequency: FREQUENCY };
    let over = AtomicBool::new(false);
    let (worked, sampled) = thread::scope(|scope| {
        let until = |_| over.load(Ordering::Relaxed);
        let sampler = scope.spawn(move || sample(process.pid, process.family, &sampling, until));
        let worked = work();
        over.store(true, Ordering::Relaxed);
        (worked, sampler.join())
    });
    worked?;
    Ok(match sampled {
        Ok(Ok(sampled)) => Maps::of(process.pid).map_err(reason).map(|maps| Observed {
            samples: sampled.samples,
            loaded: dbdyno_live::Module::loaded(&maps),
        }),
        Ok(Err(error)) => Err(reason(error)),
        Err(_) => Err("the thread that samples panicked".to_owned()),
    })
}

impl Observed {
    /// How often the code of a build was executed, by its files.
    pub fn executed(&self, build: &Build) -> Result<Vec<SampledCode>, String> {
        // The kernel names files without links in their paths.
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

    /// The samples in the artifact of a build.
    pub fn for_bolt(&self, build: &Build) -> Result<BoltSamples, String> {
        let artifact = &build.artifact;
        let path = fs::canonicalize(artifact).unwrap_or_else(|_| artifact.clone());
        let loaded = self.loaded.iter().find(|loaded| loaded.path == path);
        let loaded = loaded.ok_or_else(|| format!("{} was not loaded", artifact.display()))?;
        let module = parse(loaded)?;
        let samples = in_file(loaded, bias(loaded, &module), &self.samples);
        let profile = BoltProfile::new(&module, &samples);
        self.check(profile.written)?;
        let for_live = serde_json::to_string(&samples.to_profile(&[&module]));
        let for_live = for_live.map_err(|error| error.to_string())?;
        Ok(BoltSamples { text: profile.text, samples: profile.written, for_live })
    }

    /// That there are enough samples of what is to be optimized.
    fn check(&self, found: u64) -> Result<(), String> {
        if found >= LEAST_SAMPLES {
            return Ok(());
        }
        Err(format!(
            "only {found} of {} samples are in its own code, and fewer than {LEAST_SAMPLES} tell \
             nothing: train longer (`training_time`), or on more",
            self.samples.total()
        ))
    }
}

fn executed(loaded: &LoadedModule, samples: &Samples) -> Result<SampledCode, String> {
    let module = parse(loaded)?;
    let executions = Executions::of(&module, &in_file(loaded, bias(loaded, &module), samples));
    Ok(SampledCode {
        file: PathBuf::from(&loaded.path),
        samples: executions.samples,
        ranges: executions.ranges.iter().map(|one| (one.first, one.last, one.count)).collect(),
        calls: executions.calls.iter().map(|(call, count)| (call.from, call.to, *count)).collect(),
    })
}

/// A loaded file's code, at the addresses in the file.
fn parse(loaded: &LoadedModule) -> Result<Module, String> {
    let failed = |error: String| format!("{}: {error}", loaded.path.display());
    let file = fs::read(&loaded.path).map_err(|error| failed(error.to_string()))?;
    let name = loaded.path.display().to_string();
    Module::parse(&name, &file, 0).map_err(|error| failed(error.to_string()))
}

/// How much further on it is in memory than in the file.
fn bias(loaded: &LoadedModule, module: &Module) -> u64 {
    const PAGE: u64 = 4096;
    loaded.range.start.wrapping_sub(module.extent().start / PAGE * PAGE)
}

/// The samples in a loaded file, by addresses in the file.
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
    own
}

/// What is in the way, without the process: it is one of ours.
fn reason(error: LiveError) -> String {
    match error {
        LiveError::Refused { reason, .. } => reason,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_led_to_the_file_they_are_in() {
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
