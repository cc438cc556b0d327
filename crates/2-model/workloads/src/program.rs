//! Executable form of a microbenchmark: names resolved to slots, SQL with placeholders.

use std::collections::HashMap;

use crate::definition::{
    Bound, Counted, Distribution, Microbenchmark, ParameterSource, Statement, TableChoice, Text,
};
use crate::keys::KeyDistribution;
use crate::schema::table_name;
use crate::sql::{SqlPart, split_sql};

/// The tables that a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    pub count: u32,
    /// Rows per table after loading. Keys are drawn from 1 to this number.
    pub rows: u64,
}

/// A microbenchmark in executable form.
#[derive(Clone, Debug)]
pub struct Program {
    /// Whether an event is wrapped in BEGIN and COMMIT.
    pub transaction: bool,
    /// Whether an event changes data.
    pub writes: bool,
    /// The statements of one event, in order; each may be executed several times.
    pub statements: Vec<ProgramStatement>,
    pub(crate) tables: Tables,
    pub(crate) slots: Slots,
}

/// Number of values of each kind in an event.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slots {
    pub scalars: usize,
    pub lists: usize,
    pub texts: usize,
}

/// One statement of a [`Program`].
#[derive(Clone, Debug)]
pub struct ProgramStatement {
    /// Number of consecutive executions.
    pub repeat: u32,
    /// Which count is checked.
    pub counted: Counted,
    pub(crate) template: Vec<Piece>,
    pub(crate) table: TableChoice,
    pub(crate) draws: Vec<SlotDraw>,
    pub(crate) binds: Vec<Slot>,
    pub(crate) at_least: SlotBound,
    pub(crate) at_most: SlotBound,
}

/// A part of a statement's SQL.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    Sql(String),
    Table,
    Placeholders(u32),
}

/// The storage location of a value during an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Scalar(usize),
    List { slot: usize, count: u32 },
    Text(usize),
}

/// One draw, with names resolved to slots.
#[derive(Clone, Debug)]
pub(crate) enum SlotDraw {
    Key {
        to: usize,
        keys: KeyDistribution,
    },
    Fixed {
        to: usize,
        value: i64,
    },
    /// A value from `low` on, one of `count`.
    Between {
        to: usize,
        low: i64,
        count: u64,
    },
    Offset {
        to: usize,
        of: usize,
        plus: i64,
    },
    KeyList {
        to: usize,
        count: u32,
        keys: KeyDistribution,
    },
    Middle {
        to: usize,
        count: u32,
    },
    Text {
        to: usize,
        text: Text,
    },
}

/// A bound, with names resolved to slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotBound {
    Count(u64),
    Keys(usize),
    Range {
        low: usize,
        high: usize,
    },
    /// No bound on this side.
    None,
}

/// An inconsistent definition. Definitions in files are checked when they are read; this error
/// is for those created in code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("microbenchmark {microbenchmark}: {message}")]
pub struct ProgramError {
    pub microbenchmark: String,
    /// The problem.
    pub message: String,
}

impl Program {
    /// Compiles `definition` for these tables.
    ///
    /// # Errors
    /// A parameter has no value, an offset does not refer to a number, or a bound lacks the
    /// parameters that it refers to.
    pub fn new(definition: &Microbenchmark, tables: Tables) -> Result<Self, ProgramError> {
        let mut names = Names { by_name: HashMap::new(), slots: Slots::default() };
        let statements = definition
            .statements
            .iter()
            .map(|statement| names.resolve(statement, tables))
            .collect::<Result<_, _>>()
            .map_err(|message| ProgramError { microbenchmark: definition.name.clone(), message })?;
        Ok(Self {
            transaction: definition.transaction,
            writes: definition.writes(),
            statements,
            tables,
            slots: names.slots,
        })
    }

    /// Number of statements that one event executes, including BEGIN and COMMIT.
    pub fn statements_per_event(&self) -> u64 {
        let own: u64 = self.statements.iter().map(|s| u64::from(s.repeat)).sum();
        own + if self.transaction { 2 } else { 0 }
    }
}

impl ProgramStatement {
    /// Whether its SQL depends on the table.
    pub fn names_table(&self) -> bool {
        self.template.contains(&Piece::Table)
    }

    /// The SQL for table number `table` (from 0). `placeholder` formats the placeholder of the n-th
    /// parameter (from 1).
    pub fn sql(&self, table: u32, placeholder: impl Fn(usize) -> String) -> String {
        let mut sql = String::new();
        let mut n = 0;
        for piece in &self.template {
            match piece {
                Piece::Sql(text) => sql.push_str(text),
                Piece::Table => sql.push_str(&table_name(table)),
                Piece::Placeholders(count) => {
                    for i in 0..*count {
                        n += 1;
                        if i > 0 {
                            sql.push_str(", ");
                        }
                        sql.push_str(&placeholder(n));
                    }
                }
            }
        }
        sql
    }
}

/// The parameters of an event, by name.
struct Names {
    by_name: HashMap<String, Slot>,
    slots: Slots,
}

impl Names {
    fn resolve(
        &mut self,
        statement: &Statement,
        tables: Tables,
    ) -> Result<ProgramStatement, String> {
        let draws = statement
            .draw
            .iter()
            .map(|(name, draw)| self.resolve_draw(name, draw, tables))
            .collect::<Result<_, _>>()?;
        let (template, binds) = self.resolve_sql(&statement.sql)?;
        let expect = statement.expect;
        Ok(ProgramStatement {
            repeat: statement.repeat,
            counted: expect.what,
            table: statement.table,
            at_least: resolve_bound(expect.at_least, &binds)?,
            at_most: resolve_bound(expect.at_most, &binds)?,
            template,
            draws,
            binds,
        })
    }

    fn resolve_draw(
        &mut self,
        name: &str,
        draw: &ParameterSource,
        tables: Tables,
    ) -> Result<SlotDraw, String> {
        let keys = |distribution: Distribution| KeyDistribution::new(distribution, tables.rows);
        Ok(match draw {
            ParameterSource::Key(distribution) => {
                SlotDraw::Key { to: self.scalar(name), keys: keys(*distribution) }
            }
            ParameterSource::Fixed(value) => {
                SlotDraw::Fixed { to: self.scalar(name), value: *value }
            }
            ParameterSource::Between { low, high } => SlotDraw::Between {
                to: self.scalar(name),
                low: *low,
                count: high.abs_diff(*low).saturating_add(1),
            },
            ParameterSource::Offset { of, plus } => match self.by_name.get(of) {
                Some(Slot::Scalar(of)) => {
                    let of = *of;
                    SlotDraw::Offset { to: self.scalar(name), of, plus: *plus }
                }
                _ => return Err(format!("`{name}` is an offset of `{of}`, which is not a number")),
            },
            ParameterSource::KeyList { count, distribution } => SlotDraw::KeyList {
                to: self.list(name, *count),
                count: *count,
                keys: keys(*distribution),
            },
            ParameterSource::Middle { count } => {
                SlotDraw::Middle { to: self.list(name, *count), count: *count }
            }
            ParameterSource::Text(text) => {
                let slot = self.slots.texts;
                self.slots.texts += 1;
                self.by_name.insert(name.to_owned(), Slot::Text(slot));
                SlotDraw::Text { to: slot, text: *text }
            }
        })
    }

    /// The slot of a number; if an earlier statement drew the same name, its slot is reused.
    fn scalar(&mut self, name: &str) -> usize {
        if let Some(Slot::Scalar(slot)) = self.by_name.get(name) {
            return *slot;
        }
        let slot = self.slots.scalars;
        self.slots.scalars += 1;
        self.by_name.insert(name.to_owned(), Slot::Scalar(slot));
        slot
    }

    fn list(&mut self, name: &str, count: u32) -> usize {
        let slot = self.slots.lists;
        self.slots.lists += 1;
        self.by_name.insert(name.to_owned(), Slot::List { slot, count });
        slot
    }

    fn resolve_sql(&self, sql: &str) -> Result<(Vec<Piece>, Vec<Slot>), String> {
        let mut pieces = Vec::new();
        let mut binds = Vec::new();
        for part in split_sql(sql) {
            match part {
                SqlPart::Text(text) => pieces.push(Piece::Sql(text.to_owned())),
                SqlPart::Table => pieces.push(Piece::Table),
                SqlPart::Parameter(name) => {
                    let slot = self.by_name.get(name).copied();
                    let slot = slot.ok_or_else(|| format!("`:{name}` is never drawn"))?;
                    let count = match slot {
                        Slot::List { count, .. } => count,
                        Slot::Scalar(_) | Slot::Text(_) => 1,
                    };
                    pieces.push(Piece::Placeholders(count));
                    binds.push(slot);
                }
            }
        }
        Ok((pieces, binds))
    }
}

fn resolve_bound(bound: Bound, binds: &[Slot]) -> Result<SlotBound, String> {
    Ok(match bound {
        Bound::Count(count) => SlotBound::Count(count),
        Bound::Any => SlotBound::None,
        Bound::Keys => binds
            .iter()
            .find_map(|slot| match slot {
                Slot::List { slot, .. } => Some(SlotBound::Keys(*slot)),
                Slot::Scalar(_) | Slot::Text(_) => None,
            })
            .ok_or("a bound `keys` needs a list among the parameters")?,
        Bound::Range => {
            let mut scalars = binds.iter().filter_map(|slot| match slot {
                Slot::Scalar(slot) => Some(*slot),
                Slot::List { .. } | Slot::Text(_) => None,
            });
            match (scalars.next(), scalars.next()) {
                (Some(low), Some(high)) => SlotBound::Range { low, high },
                _ => return Err("a bound `range` needs two numbers among the parameters".into()),
            }
        }
    })
}
