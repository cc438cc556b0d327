//! Exact counts for `dbdyno live optimize`.

use dbdyno_live::{Attachment, CountingOptions, CountingReport, count};
use dbdyno_relayout::{Options, Samples};

use super::optimize::failed;
use super::text;
use crate::args::{Counts, Optimize};
use crate::error::CliError;
use crate::output;

/// The samples, with exact counts if they are requested and possible.
pub(super) fn with_counts(
    attachment: &mut Attachment,
    samples: Samples,
    layout: &Options,
    args: &Optimize,
    is_cancelled: impl Fn() -> bool,
) -> Result<(Samples, Option<CountingReport>), CliError> {
    if args.counts == Counts::Sampled {
        return Ok((samples, None));
    }
    if args.target.family {
        let reason = "the executions of several processes cannot be counted (--family)".to_owned();
        let report = CountingReport { fallback: Some(reason), ..CountingReport::default() };
        return Ok((samples, Some(report)));
    }
    output::note("counting executions");
    let counted = count(attachment, &samples, layout, &CountingOptions::default(), &is_cancelled)
        .map_err(|error| failed(error, text::advice))?;
    if is_cancelled() {
        return Err(CliError::Other("cancelled; the original code is active".to_owned()));
    }
    Ok((counted.samples, Some(counted.report)))
}

/// How executions were counted, as text.
pub(super) fn text(report: &CountingReport) -> String {
    if let Some(reason) = &report.fallback {
        return format!("estimated from samples: {reason}");
    }
    let slowdown = report
        .slowdown
        .map_or_else(|| "unknown CPU time".to_owned(), |it| format!("{it:.2} times the CPU time"));
    let left = match report.uncounted.len() {
        0 => String::new(),
        n => format!("; {n} functions estimated from samples"),
    };
    format!(
        "exact: {} executions of {} blocks in {} functions; {} bursts, {} in all, with {slowdown}: {} \
         lost{left}",
        report.executions,
        report.counters,
        report.functions,
        report.bursts,
        report.counting,
        report.lost(),
    )
}
