//! Streams of events: each statement's parameters and expected count.

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::definition::TableChoice;
use crate::keys::below;
use crate::program::{Program, Slot, SlotBound, SlotDraw};
use crate::seeds::{Purpose, rng_for};

/// Receives a statement's parameters, in order.
pub trait ParameterSink {
    /// Adds an integer.
    fn int(&mut self, value: i64);
    /// Adds an ASCII text.
    fn text(&mut self, text: &[u8]);
}

/// A statement with drawn parameters and its expected count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnStatement {
    /// The table's number, from 0.
    pub table: u32,
    /// The minimum expected count.
    pub at_least: u64,
    /// The maximum expected count.
    pub at_most: u64,
}

impl DrawnStatement {
    /// Whether `count` is within the expected range.
    #[inline]
    pub const fn allows(self, count: u64) -> bool {
        self.at_least <= count && count <= self.at_most
    }
}

/// The events of one client. Drawing does not allocate.
#[derive(Clone, Debug)]
pub struct Events {
    program: Program,
    client: u32,
    rng: Xoshiro256PlusPlus,
    scalars: Vec<i64>,
    lists: Vec<Vec<i64>>,
    texts: Vec<Vec<u8>>,
    distinct: DistinctCounter,
    table: u32,
    /// The statement that was drawn last, and how often in a row.
    last: (usize, u32),
}

impl Events {
    /// The events of client number `client` (from 0) for `program`. Call [`Self::start_block`]
    /// before the first draw of each block.
    pub fn new(program: Program, client: u32) -> Self {
        let slots = program.slots;
        let longest = program
            .statements
            .iter()
            .flat_map(|statement| &statement.binds)
            .map(|slot| match slot {
                Slot::List { count, .. } => *count as usize,
                Slot::Scalar(_) | Slot::Text(_) => 0,
            })
            .max()
            .unwrap_or(0);
        Self {
            client,
            rng: rng_for(0, Purpose::Events { microbenchmark: 0, block: 0, client }),
            scalars: vec![0; slots.scalars],
            lists: vec![Vec::new(); slots.lists],
            texts: vec![Vec::new(); slots.texts],
            distinct: DistinctCounter::for_up_to(longest),
            table: 0,
            last: (0, u32::MAX),
            program,
        }
    }

    /// The program that the events execute.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Restarts at the beginning of a block's stream. The stream depends only on these numbers and
    /// the client's number, so that all candidates get the same events.
    pub fn start_block(&mut self, seed: u64, microbenchmark: u32, block: u32) {
        let client = self.client;
        self.rng = rng_for(seed, Purpose::Events { microbenchmark, block, client });
        self.last = (0, u32::MAX);
    }

    /// Draws one execution of statement number `index` of the program.
    ///
    /// # Panics
    /// If the program has no such statement.
    #[inline]
    pub fn draw(&mut self, index: usize, sink: &mut impl ParameterSink) -> DrawnStatement {
        let statement = &self.program.statements[index];
        let tables = self.program.tables;
        let is_repeated = self.last.0 == index && self.last.1 < statement.repeat;
        self.last = (index, if is_repeated { self.last.1 + 1 } else { 1 });
        self.table = match statement.table {
            TableChoice::Any if tables.count == 1 => 0,
            // As in sysbench, all executions of a statement in an event are on one table.
            TableChoice::Any if is_repeated => self.table,
            TableChoice::Any => below(&mut self.rng, u64::from(tables.count)) as u32,
            TableChoice::Same => self.table,
            TableChoice::Own => self.client % tables.count,
        };
        for draw in &statement.draws {
            match draw {
                SlotDraw::Key { to, keys } => self.scalars[*to] = keys.draw(&mut self.rng),
                SlotDraw::Fixed { to, value } => self.scalars[*to] = *value,
                SlotDraw::Between { to, low, count } => {
                    let offset = below(&mut self.rng, *count);
                    self.scalars[*to] = low.saturating_add_unsigned(offset);
                }
                SlotDraw::Offset { to, of, plus } => {
                    self.scalars[*to] = self.scalars[*of].saturating_add(*plus);
                }
                SlotDraw::KeyList { to, count, keys } => {
                    let rng = &mut self.rng;
                    let list = &mut self.lists[*to];
                    list.clear();
                    list.extend((0..*count).map(|_| keys.draw(rng)));
                }
                SlotDraw::Middle { to, count } => {
                    let first = (tables.rows.saturating_sub(u64::from(*count)) / 2 + 1) as i64;
                    let list = &mut self.lists[*to];
                    list.clear();
                    list.extend(first..first + i64::from(*count));
                }
                SlotDraw::Text { to, text } => text.draw(&mut self.rng, &mut self.texts[*to]),
            }
        }
        for slot in &statement.binds {
            match slot {
                Slot::Scalar(slot) => sink.int(self.scalars[*slot]),
                Slot::List { slot, .. } => {
                    for key in &self.lists[*slot] {
                        sink.int(*key);
                    }
                }
                Slot::Text(slot) => sink.text(&self.texts[*slot]),
            }
        }
        let (low, high) = (statement.at_least, statement.at_most);
        let at_most = self.bound(high, u64::MAX);
        let at_least = match low {
            SlotBound::None => 0,
            // Counting distinct keys is slow; do it only once.
            low if low == high => at_most,
            low => self.bound(low, 0),
        };
        DrawnStatement { table: self.table, at_least, at_most }
    }

    #[inline]
    fn bound(&mut self, bound: SlotBound, none: u64) -> u64 {
        match bound {
            SlotBound::Count(count) => count,
            SlotBound::Keys(list) => self.distinct.count(&self.lists[list]),
            SlotBound::Range { low, high } => {
                let low = self.scalars[low].max(1);
                let high = self.scalars[high].min(self.program.tables.rows as i64);
                u64::try_from(high - low + 1).unwrap_or(0)
            }
            SlotBound::None => none,
        }
    }
}

/// Counts distinct keys without clearing or allocating between lists: an open-addressing hash
/// table in which only entries with the current stamp are valid.
#[derive(Clone, Debug)]
pub(crate) struct DistinctCounter {
    entries: Vec<(i64, u32)>,
    stamp: u32,
    shift: u32,
}

impl DistinctCounter {
    /// A counter for lists of up to `len` keys.
    pub fn for_up_to(len: usize) -> Self {
        let size = (len.max(1) * 2).next_power_of_two();
        Self { entries: vec![(0, 0); size], stamp: 0, shift: 64 - size.trailing_zeros() }
    }

    /// The number of distinct keys in `keys`.
    pub fn count(&mut self, keys: &[i64]) -> u64 {
        if self.stamp == u32::MAX {
            self.entries.fill((0, 0));
            self.stamp = 0;
        }
        self.stamp += 1;
        let mask = self.entries.len() - 1;
        let mut distinct = 0;
        for &key in keys {
            // Fibonacci hashing: the high bits of a product with 2^64 / golden ratio.
            let mut at = ((key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
            loop {
                let entry = &mut self.entries[at];
                if entry.1 != self.stamp {
                    *entry = (key, self.stamp);
                    distinct += 1;
                    break;
                }
                if entry.0 == key {
                    break;
                }
                at = (at + 1) & mask;
            }
        }
        distinct
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use crate::definition::*;
    use crate::program::Tables;

    use super::*;

    #[derive(Default)]
    struct Collected(Vec<String>);

    impl ParameterSink for Collected {
        fn int(&mut self, value: i64) {
            self.0.push(value.to_string());
        }

        fn text(&mut self, text: &[u8]) {
            self.0.push(String::from_utf8_lossy(text).into_owned());
        }
    }

    fn statement(sql: &str, draw: &[(&str, ParameterSource)], bound: Bound) -> Statement {
        Statement {
            sql: sql.to_owned(),
            draw: draw.iter().map(|(name, draw)| ((*name).to_owned(), draw.clone())).collect(),
            repeat: 1,
            table: TableChoice::Any,
            expect: Expect { what: Counted::Rows, at_least: bound, at_most: bound },
        }
    }

    fn events(statements: Vec<Statement>, rows: u64) -> Events {
        events_on(1, statements, rows)
    }

    fn events_on(tables: u32, statements: Vec<Statement>, rows: u64) -> Events {
        let microbenchmark = Microbenchmark {
            script: None,
            answers: None,
            name: "test".to_owned(),
            group: Group::Point1,
            transaction: false,
            throughput: Throughput::Statements,
            stage: Stage::Pre,
            statements,
        };
        let program = Program::new(&microbenchmark, Tables { count: tables, rows }).unwrap();
        Events::new(program, 0)
    }

    fn uniform() -> ParameterSource {
        ParameterSource::Key(Distribution::Uniform)
    }

    #[test]
    fn range_is_limited_to_the_end_of_the_table() {
        let high = ParameterSource::Offset { of: "low".to_owned(), plus: 9 };
        let sql = "SELECT c FROM {table} WHERE id BETWEEN :low AND :high";
        let range = statement(sql, &[("low", uniform()), ("high", high)], Bound::Range);
        let mut events = events(vec![range], 20);
        let mut seen = std::collections::BTreeSet::new();
        for block in 0..200 {
            events.start_block(1, 0, block);
            let mut sink = Collected::default();
            let drawn = events.draw(0, &mut sink);
            let low: i64 = sink.0[0].parse().unwrap();
            let high: i64 = sink.0[1].parse().unwrap();
            assert_eq!(high, low + 9);
            assert_eq!(drawn.at_least, (high.min(20) - low + 1) as u64);
            assert!(drawn.allows(drawn.at_most) && !drawn.allows(drawn.at_most + 1));
            seen.insert(drawn.at_least);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn in_list_expects_its_distinct_keys() {
        let keys = ParameterSource::KeyList { count: 5, distribution: Distribution::Uniform };
        let sql = "SELECT c FROM {table} WHERE id IN (:ids)";
        let mut events = events(vec![statement(sql, &[("ids", keys)], Bound::Keys)], 4);
        let program = events.program().clone();
        let sql = program.statements[0].sql(2, |n| format!("${n}"));
        assert_eq!(sql, "SELECT c FROM sbtest3 WHERE id IN ($1, $2, $3, $4, $5)");
        for block in 0..50 {
            events.start_block(1, 0, block);
            let mut sink = Collected::default();
            let drawn = events.draw(0, &mut sink);
            let set: HashSet<_> = sink.0.iter().collect();
            assert_eq!(sink.0.len(), 5);
            assert_eq!((drawn.at_least, drawn.at_most), (set.len() as u64, set.len() as u64));
        }
    }

    #[test]
    fn statement_reuses_parameters_of_earlier_statements() {
        let delete = statement("DELETE … :id", &[("id", uniform())], Bound::Any);
        let insert = statement(
            "INSERT … :id, :c",
            &[("c", ParameterSource::Text(Text::C))],
            Bound::Count(1),
        );
        let mut events = events(vec![delete, insert], 1_000);
        events.start_block(7, 3, 0);
        let (mut first, mut second) = (Collected::default(), Collected::default());
        let any = events.draw(0, &mut first);
        events.draw(1, &mut second);
        assert_eq!((any.at_least, any.at_most), (0, u64::MAX));
        assert_eq!(first.0[0], second.0[0]);
        assert_eq!(second.0[1].len(), 119);
    }

    #[test]
    fn the_same_block_gives_the_same_events() {
        let mut events =
            events(vec![statement("SELECT :id", &[("id", uniform())], Bound::Count(1))], 1 << 40);
        let mut stream = |block| {
            events.start_block(9, 1, block);
            let mut sink = Collected::default();
            for _ in 0..5 {
                events.draw(0, &mut sink);
            }
            sink.0
        };
        assert_eq!(stream(4), stream(4));
        assert_ne!(stream(4), stream(5));
    }

    #[test]
    fn repeated_statement_stays_on_one_table() {
        let ten =
            Statement { repeat: 10, ..statement("SELECT :id", &[("id", uniform())], Bound::Any) };
        let one = statement("SELECT 1", &[], Bound::Any);
        let mut events = events_on(1_000, vec![ten.clone(), ten, one], 100);
        events.start_block(1, 0, 0);
        let mut sink = Collected::default();
        let mut tables = Vec::new();
        for _ in 0..3 {
            for (statement, repeat) in [(0, 10), (1, 10), (2, 1)] {
                tables.extend((0..repeat).map(|_| events.draw(statement, &mut sink).table));
            }
        }
        tables.dedup();
        assert_eq!(tables.len(), 9, "{tables:?}");
    }

    #[test]
    fn hot_points_are_adjacent_keys_from_the_middle() {
        let middle =
            statement("IN (:ids)", &[("ids", ParameterSource::Middle { count: 4 })], Bound::Keys);
        let mut events = events(vec![middle], 100);
        let mut sink = Collected::default();
        assert_eq!(events.draw(0, &mut sink).at_least, 4);
        assert_eq!(sink.0, ["49", "50", "51", "52"]);
    }

    proptest! {
        #[test]
        fn count_equals_the_size_of_a_set(lists in prop::collection::vec(prop::collection::vec(-20i64..20, 0..64), 1..8)) {
            let mut counter = DistinctCounter::for_up_to(64);
            for list in lists {
                let set: HashSet<_> = list.iter().collect();
                prop_assert_eq!(counter.count(&list), set.len() as u64);
            }
        }
    }

    #[test]
    fn old_entries_are_not_counted_after_stamp_overflow() {
        let mut counter = DistinctCounter::for_up_to(4);
        counter.stamp = u32::MAX - 1;
        assert_eq!(counter.count(&[1, 2, 2]), 2);
        assert_eq!(counter.count(&[1, 2, 3]), 3);
    }
}
