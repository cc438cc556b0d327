//! A private server under the live optimizer, with all its processes.

use std::path::Path;

use anyhow::ensure;
use dbdyno_live::{
    Counted, CountingOptions, Module, OptimizeJob, Outcome, ProbeOptions, Process, ProcessProfile,
    Sampled, Supervision, Target, count, map_to_original,
};
use dbdyno_relayout::Options;
use dbdyno_types::server::ServerSystem;
use dbdyno_units::Nanos;

/// A server is optimized many times: replaced code is unmapped.
const UNMAP: ProbeOptions = ProbeOptions { allow_seccomp: false, unmap: true };

/// The processes of a server of a system; `pid` is the first one.
#[must_use]
pub fn target(system: ServerSystem, pid: u32, state: &Path, max_pause: Nanos) -> Target {
    let family = system == ServerSystem::PostgreSql;
    let (state, max_pause) = (state.to_owned(), max_pause.into());
    Target { pid, family, state, probe: UNMAP, max_pause }
}

/// Optimizes all processes with samples.
///
/// # Errors
/// The first process could not be optimized.
pub fn optimize(target: &Target, sampled: &Sampled) -> anyhow::Result<Outcome> {
    let attachment = target.attach()?;
    let profile = ProcessProfile::given(map_to_original(&attachment, &sampled.samples));
    let job = OptimizeJob {
        target: target.clone(),
        count: false,
        layout: Options::default(),
        symbols: false,
        ab_test: None,
    };
    Ok(job.run(attachment, profile, Supervision::NONE, &mut |_| ())?)
}

/// Counts executions of the first process, which must be under load.
///
/// # Errors
/// The process exited, or the code that counts could not be deactivated.
pub fn count_executions(target: &Target, sampled: &Sampled) -> anyhow::Result<Counted> {
    let mut attachment = target.attach()?;
    let samples = map_to_original(&attachment, &sampled.samples);
    let counting = CountingOptions::default();
    Ok(count(&mut attachment, &samples, &Options::default(), &counting, || false)?)
}

/// Checks that after an undo no code differs from the files.
///
/// # Errors
/// Some code differs.
pub fn ensure_original(target: &Target) -> anyhow::Result<()> {
    let process = Process::open(target.pid, target.probe)?;
    for loaded in Module::loaded(&process.maps()?) {
        let module = Module::open(&process, &loaded)?;
        let differences = module.differences(&process)?;
        ensure!(differences.is_empty(), "{} differs: {differences:?}", loaded.path.display());
    }
    Ok(())
}
