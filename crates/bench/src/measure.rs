//! Runs the blocks of one microbenchmark on all candidates, slice by slice.

use dbdyno_record::SliceMeasured;
use dbdyno_units::Nanos;

use crate::schedule::{Pace, Pacing, order};
use crate::slice::SliceRequest;
use crate::worker::{WorkerError, WorkerHandle};

/// Something that slices run on.
pub trait Runner {
    /// Runs one slice.
    ///
    /// # Errors
    /// The slice is lost, and perhaps the runner with it.
    fn slice(&mut self, order: SliceRequest) -> Result<SliceMeasured, SliceError>;
}

/// Why there is no slice.
#[derive(Clone, Debug)]
pub enum SliceError {
    /// The runner was lost and has been started again; it goes on with the next block.
    Lost(WorkerError),
    /// The runner cannot go on.
    Failed(WorkerError),
}

impl Runner for WorkerHandle {
    fn slice(&mut self, order: SliceRequest) -> Result<SliceMeasured, SliceError> {
        Self::slice(self, order).map_err(SliceError::Failed)
    }
}

/// The blocks to run.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// Where the order is drawn from.
    pub seed: u64,
    /// The microbenchmark's position in the running order.
    pub microbenchmark: u32,
    /// The number of the first block.
    pub first: u32,
    /// How many blocks from there on are warm-up.
    pub warmup: u32,
    /// Length of a slice.
    pub slice: Nanos,
    /// What ends a slice.
    pub pace: Pace,
    /// Which runner is the baseline.
    pub baseline: usize,
}

/// One slice that was run.
#[derive(Clone, Debug)]
pub struct SliceRecord {
    /// The block.
    pub block: u32,
    /// Its place in the block, from 0.
    pub place: u32,
    /// Whether it is warm-up and never counts.
    pub warmup: bool,
    /// The runner's number.
    pub candidate: usize,
    /// What it measured.
    pub measured: SliceMeasured,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Run the next one.
    Continue,
    /// Run no more.
    Stop,
}

/// Follows the blocks as they go by.
pub trait Observer {
    /// What it may fail with.
    type Error;

    /// A slice is over.
    ///
    /// # Errors
    /// The observer's own; the blocks end with it.
    fn slice(&mut self, record: SliceRecord) -> Result<Flow, Self::Error>;

    /// A runner lost its slice and goes on.
    ///
    /// # Errors
    /// The observer's own; the blocks end with it.
    fn lost(&mut self, candidate: usize, why: &WorkerError) -> Result<(), Self::Error>;

    /// A runner failed and takes no further part.
    ///
    /// # Errors
    /// The observer's own; the blocks end with it.
    fn failed(&mut self, candidate: usize, why: &WorkerError) -> Result<(), Self::Error>;

    /// A block is over: every runner that is left had a slice in it.
    ///
    /// # Errors
    /// The observer's own; the blocks end with it.
    fn block(&mut self, block: u32, warmup: bool) -> Result<Flow, Self::Error>;
}

/// Why no more blocks are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The observer said so.
    Stopped,
    /// The baseline failed, or was not there: there is nothing to compare with.
    BaselineFailed,
}

/// Runs blocks until the observer stops them. A runner that fails is dropped from its place.
///
/// # Errors
/// Only the observer's.
pub fn run_blocks<R: Runner, O: Observer>(
    runners: &mut [Option<R>],
    blocks: &Blocks,
    observer: &mut O,
) -> Result<Ended, O::Error> {
    // Without anybody at work no observer would ever be asked whether to go on.
    if runners[blocks.baseline].is_none() {
        return Ok(Ended::BaselineFailed);
    }
    let mut pacing = Pacing::new(blocks.pace, blocks.slice);
    for block in blocks.first.. {
        let warmup = block - blocks.first < blocks.warmup;
        let order = order(blocks.seed, blocks.microbenchmark, block, runners.len());
        let order = pacing.arrange(order, blocks.baseline, warmup);
        for (place, candidate) in (0..).zip(order) {
            let Some(runner) = &mut runners[candidate] else { continue };
            match runner.slice(pacing.next(block, warmup)) {
                Ok(measured) => {
                    pacing.note(&measured);
                    let record = SliceRecord { block, place, warmup, candidate, measured };
                    if observer.slice(record)? == Flow::Stop {
                        return Ok(Ended::Stopped);
                    }
                }
                Err(SliceError::Lost(why)) => observer.lost(candidate, &why)?,
                Err(SliceError::Failed(why)) => {
                    runners[candidate] = None;
                    observer.failed(candidate, &why)?;
                    if candidate == blocks.baseline {
                        return Ok(Ended::BaselineFailed);
                    }
                }
            }
        }
        if observer.block(block, warmup)? == Flow::Stop {
            break;
        }
    }
    Ok(Ended::Stopped)
}

/// The pinning tests below write a run as a line of text: one letter per slice, the baseline `b`,
/// candidates from `c` on, capital letters for warm-up, `t` or `e` after it for a slice that ends
/// by time or after events, `!` for a failure, `?` for a lost slice, `|` between blocks.
#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::slice::Quota;

    /// A runner with a fixed speed, in events per microsecond of its slice.
    struct Fake {
        name: char,
        events_per_time_slice: u64,
        fails_at: Option<u32>,
        lost_at: Option<u32>,
        script: Rc<RefCell<String>>,
        first_counted: u32,
    }

    impl Runner for Fake {
        fn slice(&mut self, order: SliceRequest) -> Result<SliceMeasured, SliceError> {
            let mut script = self.script.borrow_mut();
            let warmup = order.block < self.first_counted;
            script.push(if warmup { self.name.to_ascii_uppercase() } else { self.name });
            if self.fails_at == Some(order.block) {
                script.push('!');
                return Err(SliceError::Failed(WorkerError::NotStarted("as told".to_owned())));
            }
            if self.lost_at == Some(order.block) {
                script.push('?');
                return Err(SliceError::Lost(WorkerError::NotStarted("as told".to_owned())));
            }
            let (letter, events) = match order.quota {
                Quota::Time(_) => ('t', self.events_per_time_slice),
                Quota::Events(events) => ('e', events),
            };
            script.push(letter);
            Ok(SliceMeasured { events, ..SliceMeasured::default() })
        }
    }

    struct Script {
        script: Rc<RefCell<String>>,
        blocks: u32,
        events: Vec<u64>,
    }

    impl Observer for Script {
        type Error = ();

        fn slice(&mut self, record: SliceRecord) -> Result<Flow, ()> {
            self.events.push(record.measured.events);
            Ok(Flow::Continue)
        }

        fn lost(&mut self, _: usize, _: &WorkerError) -> Result<(), ()> {
            Ok(())
        }

        fn failed(&mut self, _: usize, _: &WorkerError) -> Result<(), ()> {
            Ok(())
        }

        fn block(&mut self, block: u32, _: bool) -> Result<Flow, ()> {
            if block + 1 == self.blocks {
                return Ok(Flow::Stop);
            }
            self.script.borrow_mut().push('|');
            Ok(Flow::Continue)
        }
    }

    fn run(pace: Pace, fails: &[(char, u32)]) -> (String, Vec<u64>, Ended) {
        run_with_losses(pace, fails, &[])
    }

    fn run_with_losses(
        pace: Pace,
        fails: &[(char, u32)],
        losses: &[(char, u32)],
    ) -> (String, Vec<u64>, Ended) {
        let at = |list: &[(char, u32)], name: char| {
            list.iter().find(|(n, _)| *n == name).map(|(_, block)| *block)
        };
        let script = Rc::new(RefCell::new(String::new()));
        let mut runners: Vec<Option<Fake>> = [('b', 100), ('c', 200), ('d', 50)]
            .map(|(name, events_per_time_slice)| {
                Some(Fake {
                    name,
                    events_per_time_slice,
                    fails_at: at(fails, name),
                    lost_at: at(losses, name),
                    script: Rc::clone(&script),
                    first_counted: 2,
                })
            })
            .into();
        let blocks = Blocks {
            seed: 6,
            microbenchmark: 0,
            first: 0,
            warmup: 2,
            slice: Nanos::from_millis(50),
            pace,
            baseline: 0,
        };
        let mut observer = Script { script: Rc::clone(&script), blocks: 5, events: Vec::new() };
        let ended = run_blocks(&mut runners, &blocks, &mut observer).unwrap();
        let text = script.borrow().clone();
        (text, observer.events, ended)
    }

    #[test]
    fn by_events_the_baseline_leads_the_warm_up_and_sets_the_number_for_all() {
        let (script, events, ended) = run(Pace::Events, &[]);
        assert_eq!(script, "BtDeCe|BtCeDe|decebe|becede|bedece");
        assert!(events.iter().all(|events| *events == 100), "{events:?}");
        assert_eq!(ended, Ended::Stopped);
    }

    #[test]
    fn by_time_every_slice_ends_by_time_and_the_order_is_the_same() {
        let (script, _, _) = run(Pace::Time, &[]);
        let (by_events, _, _) = run(Pace::Events, &[]);
        let counted = |script: &str| script.split('|').skip(2).collect::<String>();
        assert_eq!(counted(&script).replace('t', "e"), counted(&by_events));
        assert!(!script.contains('e'), "{script}");
    }

    #[test]
    fn a_candidate_that_fails_drops_out_and_the_others_go_on() {
        let (script, _, ended) = run(Pace::Events, &[('c', 3)]);
        assert_eq!(script, "BtDeCe|BtCeDe|decebe|bec!de|bede");
        assert_eq!(ended, Ended::Stopped);
    }

    #[test]
    fn a_baseline_that_fails_ends_the_blocks() {
        let (script, _, ended) = run(Pace::Events, &[('b', 3)]);
        assert_eq!(script, "BtDeCe|BtCeDe|decebe|b!");
        assert_eq!(ended, Ended::BaselineFailed);
    }

    #[test]
    fn a_runner_that_lost_a_slice_goes_on_with_the_next_block() {
        let (script, _, ended) = run_with_losses(Pace::Events, &[], &[('c', 3), ('b', 4)]);
        assert_eq!(script, "BtDeCe|BtCeDe|decebe|bec?de|b?dece");
        assert_eq!(ended, Ended::Stopped);
    }
}
