//! Progress of a fleet run: one line per node, redrawn on a terminal; elsewhere a line for each change.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};

use dbdyno_fleet::{FleetRecord, TaskStatus, lines, totals};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Lines of a terminal of unknown height.
const HEIGHT: usize = 24;

/// Lines of the terminal that are left free.
const FREE: usize = 3;

/// Shows the tasks of a fleet run on standard error.
pub struct FleetDisplay {
    bar: ProgressBar,
    is_terminal: bool,
    /// The state of each task that was printed last, and Slurm's silence.
    printed: Mutex<BTreeMap<String, String>>,
}

impl FleetDisplay {
    /// A display, redrawn if standard error is a terminal.
    pub fn new() -> Self {
        let is_terminal = stderr().is_terminal();
        let bar = if is_terminal {
            let style = ProgressStyle::with_template("{msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            let target = ProgressDrawTarget::stderr_with_hz(4);
            ProgressBar::with_draw_target(None, target).with_style(style)
        } else {
            ProgressBar::hidden()
        };
        super::set_progress_line(is_terminal.then(|| bar.clone()));
        Self { bar, is_terminal, printed: Mutex::new(BTreeMap::new()) }
    }

    /// Shows the tasks; `silent` says that Slurm does not answer.
    pub fn show(&self, record: &FleetRecord, all: &[TaskStatus], silent: Option<&str>) {
        if self.is_terminal {
            self.draw(record, all, silent);
        } else {
            self.print_changes(record, all, silent);
        }
    }

    /// Ends the display; the last state stays on the terminal.
    pub fn finish(&self) {
        super::set_progress_line(None);
        self.bar.abandon();
    }

    fn draw(&self, record: &FleetRecord, all: &[TaskStatus], silent: Option<&str>) {
        let height = terminal_size::terminal_size().map_or(HEIGHT, |(_, rows)| usize::from(rows.0));
        let room = height.saturating_sub(FREE).max(1);
        let table = lines(record, all, super::width().saturating_sub(1));
        // Of many, first those that are not done.
        let is_done = |status: &TaskStatus| status.state == "complete";
        let mut order: Vec<usize> = (0..table.len()).collect();
        if table.len() > room {
            order.sort_by_key(|index| is_done(&all[*index]));
        }
        let mut shown: Vec<String> =
            order.iter().take(room).map(|index| table[*index].clone()).collect();
        if table.len() > room {
            shown.push(format!("and {} more", table.len() - room));
        }
        shown.push(totals(all));
        shown.extend(silent.map(str::to_owned));
        let shown: Vec<String> =
            shown.iter().map(|line| super::visible(line).into_owned()).collect();
        self.bar.set_message(shown.join("\n"));
        self.bar.tick();
    }

    fn print_changes(&self, record: &FleetRecord, all: &[TaskStatus], silent: Option<&str>) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        for (status, line) in all.iter().zip(lines(record, all, usize::MAX)) {
            let state = format!("{} {:?} {}", status.state, status.attempt, status.node);
            if printed.get(&status.name) != Some(&state) {
                super::plain_line(&line);
                printed.insert(status.name.clone(), state);
            }
        }
        // A task cannot have an empty name.
        let before = printed.insert(String::new(), silent.unwrap_or_default().to_owned());
        if let Some(silent) = silent.filter(|_| before.is_none_or(|before| before.is_empty())) {
            super::plain_line(silent);
        }
    }
}
