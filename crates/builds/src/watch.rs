//! Telling how far a build tool is from what it prints.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::compile_database::is_compilation;
use crate::recipe::Counts;

/// How often progress is told.
const PERIOD: Duration = Duration::from_millis(500);

/// Reads what a step adds to its log.
pub(crate) struct Watch<'a> {
    log: File,
    read: u64,
    /// The start of a line whose end was not written yet.
    rest: String,
    counter: Counter,
    last: Instant,
    tell: &'a dyn Fn(usize, usize),
}

/// Counts commands in lines of output.
pub(crate) struct Counter {
    counts: Counts,
    compiler: String,
    done: usize,
    of: usize,
}

impl Counter {
    /// `of` is how many there will be, where the tool does not say.
    pub(crate) fn new(counts: Counts, compiler: &Path, of: usize) -> Self {
        Self { counts, compiler: compiler.to_string_lossy().into_owned(), done: 0, of }
    }

    pub(crate) fn add(&mut self, line: &str) {
        match self.counts {
            Counts::Nothing => {}
            Counts::Ninja => {
                let numbers = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                let numbers = numbers.and_then(|(numbers, _)| numbers.split_once('/'));
                let parsed = numbers.map(|(done, of)| (done.parse(), of.parse()));
                if let Some((Ok(done), Ok(of))) = parsed {
                    (self.done, self.of) = (done, of);
                }
            }
            Counts::Make if is_compilation(line, &self.compiler) => {
                self.done += 1;
                // What was generated first may have changed what there is to do.
                self.of = self.of.max(self.done);
            }
            Counts::Make => {}
        }
    }

    /// Commands that are done, and all.
    pub(crate) const fn so_far(&self) -> (usize, usize) {
        (self.done, self.of)
    }
}

impl<'a> Watch<'a> {
    /// Watches what is appended to `log` from position `start` on.
    pub(crate) fn new(
        log: File,
        start: u64,
        counter: Counter,
        tell: &'a dyn Fn(usize, usize),
    ) -> Self {
        Self { log, read: start, rest: String::new(), counter, last: Instant::now(), tell }
    }

    /// Looks at the log, if it is time, and tells progress if there was any.
    pub(crate) fn look(&mut self) {
        if self.counter.counts == Counts::Nothing || self.last.elapsed() < PERIOD {
            return;
        }
        self.last = Instant::now();
        let mut new = Vec::new();
        let read = self.log.seek(SeekFrom::Start(self.read));
        // What cannot be read is not told; the step itself does not suffer.
        if read.and_then(|_| self.log.read_to_end(&mut new)).is_err() || new.is_empty() {
            return;
        }
        self.read += new.len() as u64;
        self.rest.push_str(&String::from_utf8_lossy(&new));
        let before = self.counter.so_far();
        while let Some(end) = self.rest.find('\n') {
            let line: String = self.rest.drain(..=end).collect();
            self.counter.add(line.trim_end());
        }
        let (done, of) = self.counter.so_far();
        if (done, of) != before {
            (self.tell)(done, of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(counts: Counts, of: usize, lines: &[&str]) -> (usize, usize) {
        let mut counter = Counter::new(counts, Path::new("/usr/bin/gcc"), of);
        lines.iter().for_each(|line| counter.add(line));
        counter.so_far()
    }

    #[test]
    fn ninja_says_how_far_it_is() {
        let lines = ["[1/731] Building C object x.o", "warning: [x/y] no", "[2/730] Linking"];
        assert_eq!(count(Counts::Ninja, 0, &lines), (2, 730));
    }

    #[test]
    fn of_make_the_compilations_are_counted() {
        let lines = ["make[1]: Entering directory '/x'", "/usr/bin/gcc -c a.c -o a.o", "rm -f x"];
        assert_eq!(count(Counts::Make, 9, &lines), (1, 9));
        assert_eq!(count(Counts::Make, 0, &lines), (1, 1));
    }
}
