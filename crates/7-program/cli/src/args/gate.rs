//! Rules that a run must keep.

use clap::Args;
use dbdyno_report::gate::Rule;

/// The rules of a gate for continuous integration.
#[derive(Clone, Debug, Args)]
pub struct Gate {
    /// Exit with 3 if a candidate is worse than the baseline by more than this, beyond its 95%
    /// interval and the noise floor: `slower 2%`, `more-cpu 2%`, or `worse 2%` by the metric to
    /// trust; then maybe `in` a group or microbenchmark, and `of` a candidate. Also writes
    /// junit.xml. Can be repeated
    #[arg(long = "fail-if", value_name = "RULE")]
    pub rules: Vec<Rule>,
}
