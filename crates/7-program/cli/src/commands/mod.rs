//! The commands.

mod audit;
mod bisect;
mod builds;
mod check;
mod clean;
mod compare;
mod doctor;
mod execution;
mod export_file;
mod fleet;
mod gate;
mod hidden;
mod history;
mod list;
mod live;
mod report;
mod run;
mod session;

pub use audit::audit;
pub use bisect::bisect;
pub use builds::builds;
pub use check::check;
pub use clean::clean;
pub use compare::compare;
pub use doctor::doctor;
pub use fleet::fleet;
pub use hidden::{agent, completions, man, worker};
pub use history::history;
pub use list::list;
pub use live::live;
pub use report::{import, report};
pub use run::run;

use session::{own_program, stop_on_signals};
