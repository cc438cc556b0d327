//! Tests of parsers with damaged input, for tests of the other crates.
//!
//! Input that we did not write may be damaged or made to cause harm. A parser must read or refuse it
//! without a panic, in time, and without more memory than the input justifies. [`Fuzz`] damages valid
//! samples and checks these three; [`check_cases`] and [`measure_memory`] are for input that is generated
//! in another way.
//!
//! [`skip`] is for all tests that need what a machine may not have.
//!
//! Everyday tests try the same few hundred cases each time. `make fuzz` sets `DBDYNO_FUZZ_SECONDS`:
//! then each test tries new cases for this time.

mod damage;
mod memory;

use std::time::{Duration, Instant};

use proptest::strategy::Strategy;
use proptest::test_runner::RngAlgorithm;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRng, TestRunner};

use damage::damages;
pub use memory::measure_memory;

/// The variable with the number of seconds for each test.
const SECONDS: &str = "DBDYNO_FUZZ_SECONDS";

/// Time limit of one case, far above what any needs: the test may share its CPU.
const MAX_TIME: Duration = Duration::from_secs(20);

/// Cases between two looks at the clock.
const ROUND: u32 = 64;

/// Prints why a test is skipped, also to the file that `scripts/run-tests.sh` shows: cargo does not show what
/// passing tests print.
///
/// # Panics
/// The file cannot be written.
#[allow(clippy::print_stdout, reason = "called by tests")]
pub fn skip(reason: &str) {
    let line = format!("skipped: {}\n", reason.replace('\n', " "));
    print!("{line}");
    let Some(path) = std::env::var_os("DBDYNO_SKIPPED_TESTS") else { return };
    let file = std::fs::File::options().append(true).create(true).open(path);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
    assert!(written.is_ok(), "{written:?}");
}

#[derive(Clone, Debug)]
pub struct Fuzz {
    samples: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    cases: u32,
    max_memory: usize,
}

impl Fuzz {
    /// A test with damaged variants of these valid files, of 256 cases and at most 64 MiB of memory.
    pub fn new(samples: Vec<Vec<u8>>) -> Self {
        Self { samples, words: Vec::new(), cases: 256, max_memory: 64 << 20 }
    }

    /// Words of the format, which are also inserted.
    pub fn words(self, words: &[&str]) -> Self {
        Self { words: words.iter().map(|word| word.as_bytes().to_vec()).collect(), ..self }
    }

    /// The number of everyday cases.
    pub fn cases(self, cases: u32) -> Self {
        Self { cases, ..self }
    }

    /// The memory limit of a case in bytes, for what the calling thread allocates.
    pub fn max_memory(self, max_memory: usize) -> Self {
        Self { max_memory, ..self }
    }

    /// Calls `read` with damaged samples.
    ///
    /// # Panics
    /// `read` panics, takes too long or too much memory. The message has the smallest damage found
    /// with the same effect.
    pub fn run(&self, read: impl Fn(&[u8])) {
        assert!(!self.samples.is_empty(), "no samples");
        self.samples.iter().for_each(|sample| read(sample));
        let strategy = damages(self.samples.len(), self.words.len());
        check_cases(&strategy, self.cases, |damage| {
            let content = damage.apply(&self.samples, &self.words);
            let start = Instant::now();
            let ((), used) = measure_memory(|| read(&content));
            if used > self.max_memory {
                return Err(TestCaseError::fail(format!("it took {used} bytes of memory")));
            }
            match start.elapsed() {
                taken if taken > MAX_TIME => Err(TestCaseError::fail(format!("it took {taken:?}"))),
                _ => Ok(()),
            }
        });
    }
}

/// Calls `check` with values of a strategy: every day with the same `cases` values, or with new ones for
/// the time in `DBDYNO_FUZZ_SECONDS`.
///
/// # Panics
/// `check` fails or panics. The message has the smallest value found with the same effect.
pub fn check_cases<S: Strategy>(
    strategy: &S,
    cases: u32,
    check: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let seconds = std::env::var(SECONDS).ok().map(|text| {
        text.parse().unwrap_or_else(|_| panic!("{SECONDS}: `{text}` is not a number of seconds"))
    });
    let config = |cases| Config { cases, failure_persistence: None, ..Config::default() };
    let run = |mut runner: TestRunner| match runner.run(strategy, &check) {
        Ok(()) => {}
        Err(TestError::Fail(why, value)) => panic!("{why}\n{value:?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    };
    let Some(seconds) = seconds else {
        let same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        return run(TestRunner::new_with_rng(config(cases), same));
    };
    let start = Instant::now();
    let time = Duration::from_secs(seconds);
    let mut done = 0;
    while start.elapsed() < time {
        // A new one each time: a runner that has succeeded runs no further cases.
        run(TestRunner::new(config(ROUND)));
        done += u64::from(ROUND);
    }
    #[allow(clippy::print_stdout, reason = "for the person who runs the test for this long")]
    {
        println!("{done} cases in {:?}", start.elapsed());
    }
}
