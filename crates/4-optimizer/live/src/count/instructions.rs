//! Executed instructions of a running process by function, while somebody keeps it busy.
//!
//! The same counters as before an optimization, but active all the time while the work is done, without the original
//! code in between: so they can be divided by the work. Threads that count at the same time may lose counts, so one
//! thread should do the work.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use dbdyno_relayout::{Counter, Options, Samples, executed_functions};
use dbdyno_types::executed::ExecutedFunction;

use super::{Bursts, CountingReport};
use crate::arch::check_platform;
use crate::attachment::Attachment;
use crate::module::{HotModules, Module};
use crate::optimize::{lay_out_in, patch, readable_modules};
use crate::patch::Patch;
use crate::process::Process;
use crate::target::{Target, descendants};
use crate::{LiveError, OptimizeError};

/// Interval between reads of the counters, which overflow. No block is executed 2³² times in it.
const READ_INTERVAL: Duration = Duration::from_millis(250);

/// A function in which a process spends CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledFunction {
    /// The name of its file, without directories.
    pub module: String,
    /// Its first address as stated in the file.
    pub start: u64,
    pub samples: u64,
}

/// Code that counts instructions, in memory of a process, inactive. To be made while the process is idle.
///
/// It stays there, inactive, until the next optimization or counting of the process.
#[derive(Debug)]
pub struct InstructionCounting {
    attachment: Attachment,
    modules: HotModules,
    patch: Patch,
    counters: Vec<Counter>,
}

impl InstructionCounting {
    /// Makes code that counts in the functions with most of the samples, as many as an optimization would move.
    ///
    /// # Errors
    /// The process cannot be changed, or no function can be moved. In case of an error, nothing was changed.
    pub fn prepare(target: &Target, functions: &[SampledFunction]) -> Result<Self, OptimizeError> {
        check_platform()?;
        let mut attachment = target.attach_to_optimize(&mut |_| ())?;
        let samples = samples_of(attachment.process(), functions)?;
        let modules = readable_modules(&attachment, &samples)?;
        let options = Options { count: true, ..Options::default().in_original_order() };
        let (layout, _) = lay_out_in(&mut attachment, &modules, &samples, &options)?;
        for function in layout.statistics.uncountable.iter().chain(&layout.statistics.unproven) {
            tracing::debug!(function, "its instructions are not counted");
        }
        let patch = patch(&layout, &[]).0;
        Ok(Self { attachment, modules, patch, counters: layout.counters })
    }

    /// Counts while `work` is done, which is done in any case. What was active before is active afterwards, or the
    /// original code if an earlier optimization could not be activated again.
    ///
    /// # Errors
    /// The process exited, or the code that counts could not be activated, read or deactivated.
    pub fn count<T>(
        mut self,
        work: impl FnOnce() -> T,
    ) -> (T, Result<Vec<ExecutedFunction>, LiveError>) {
        let earlier = self.attachment.active_number();
        let forked_before = descendants(self.attachment.process().pid());
        let mut bursts = Bursts {
            attachment: &mut self.attachment,
            counters: &self.counters,
            report: &mut CountingReport::default(),
            before: vec![0; self.counters.len()],
            is_optimized: earlier.is_some(),
        };
        let (done, counts) = match bursts.start(&self.patch) {
            Ok(()) => bursts.read_during(work),
            Err(error) => (work(), Err(error)),
        };
        // Also after an error: the code that counts must not stay active.
        let ended = bursts.end(earlier);
        self.attachment.end_counting_of_descendants(&forked_before);
        (done, ended.and(counts).map(|counts| self.executed(&counts)))
    }

    fn executed(&self, counts: &[u64]) -> Vec<ExecutedFunction> {
        let mut samples = Samples::default();
        for (counter, count) in self.counters.iter().zip(counts) {
            samples.add_block_count(counter.block, *count);
        }
        let images = self.modules.found.iter().map(|module| &module.image);
        let executed = images.flat_map(|image| {
            let of_image = executed_functions(image, &samples).into_iter();
            of_image.map(|function| ExecutedFunction {
                module: image.name().to_owned(),
                start: image.to_offset(function.start),
                instructions: function.instructions,
            })
        });
        executed.collect()
    }
}

impl Bursts<'_> {
    /// Activates the code that counts for the first time. What was counted before it returns is forgotten.
    fn start(&mut self, patch: &Patch) -> Result<(), LiveError> {
        self.attachment.install_counting(patch)?;
        let mut forgotten = vec![0; self.counters.len()];
        self.read(&mut forgotten)
    }

    /// Reads the counters while `work` is done, and at its end.
    fn read_during<T>(&mut self, work: impl FnOnce() -> T) -> (T, Result<Vec<u64>, LiveError>) {
        let (end, ended) = channel::<()>();
        thread::scope(|scope| {
            let reader = scope.spawn(move || -> Result<Vec<u64>, LiveError> {
                let mut counts = vec![0; self.counters.len()];
                while ended.recv_timeout(READ_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    self.read(&mut counts)?;
                }
                self.read(&mut counts)?;
                Ok(counts)
            });
            let done = work();
            drop(end);
            let counts = reader.join();
            (done, counts.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }
}

/// One address in each function, with its samples. Functions of files that cannot be read are left out.
fn samples_of(process: &Process, functions: &[SampledFunction]) -> Result<Samples, LiveError> {
    let mut samples = Samples::default();
    for loaded in Module::loaded(&process.maps()?) {
        let name = loaded.path.file_name().unwrap_or_default().to_string_lossy();
        let of_file = functions.iter().filter(|function| function.module == name);
        if of_file.clone().next().is_none() {
            continue;
        }
        let Ok(file) = Module::open(process, &loaded) else { continue };
        for function in of_file {
            samples.add_hit(file.bias().wrapping_add(function.start), function.samples);
        }
    }
    Ok(samples)
}
