//! Exact counts for `dbdyno live optimize`.

use std::time::Duration;

use dbdyno_live::{Attachment, CountingOptions, CountingReport, LiveError, OptimizeError, count};
use dbdyno_relayout::{Options, Samples};
use dbdyno_spec::experiment::Counts;

use super::counting_guard::CountingGuard;
use super::optimize::failed;
use super::profile::ProfiledProcess;
use super::{Session, text};
use crate::args::Optimize;
use crate::error::CliError;
use crate::output;

/// Why nothing is optimized.
pub(super) const CANCELLED: &str = "cancelled; the code that was active before is active again";

/// How executions are counted.
pub(super) struct CountingRequest {
    /// Their source.
    pub counts: Counts,
    /// Whether the descendants of the process are optimized with it.
    pub family: bool,
    /// Maximum time for which threads may be stopped, if dbdyno is killed.
    pub max_pause: Duration,
}

/// The samples, with exact counts if they are requested and possible.
pub(super) fn with_counts(
    session: &Session,
    attachment: &mut Attachment,
    samples: Samples,
    layout: &Options,
    request: &CountingRequest,
    is_cancelled: impl Fn() -> bool,
) -> Result<(Samples, Option<CountingReport>), CliError> {
    if request.counts == Counts::Sampled {
        return Ok((samples, None));
    }
    if request.family {
        let reason = "the executions of several processes cannot be counted (--family)".to_owned();
        let report = CountingReport { fallback: Some(reason), ..CountingReport::default() };
        return Ok((samples, Some(report)));
    }
    output::note("counting executions");
    let guard = CountingGuard::start(session, attachment.process().pid(), request.max_pause)?;
    let counted = count(attachment, &samples, layout, &CountingOptions::default(), &is_cancelled);
    match &counted {
        Ok(_) | Err(OptimizeError::Live(LiveError::Exited { .. })) => drop(guard),
        // The code that counts may be active. The caller releases the process.
        Err(_) => guard.act(),
    }
    let counted = counted.map_err(|error| failed(error, text::advice))?;
    if is_cancelled() {
        return Err(CliError::Other(CANCELLED.to_owned()));
    }
    Ok((counted.samples, Some(counted.report)))
}

/// Adds exact counts to a profile as [`with_counts`] does. If they are impossible, the process is sampled longer.
pub(super) fn add_counts(
    session: &Session,
    attachment: &mut Attachment,
    profiled: &mut ProfiledProcess,
    layout: &Options,
    args: &Optimize,
    is_cancelled: impl Fn() -> bool,
) -> Result<Option<CountingReport>, CliError> {
    let max_pause = args.target.options.max_pause();
    let request = CountingRequest { counts: args.counts, family: args.target.family, max_pause };
    let samples = std::mem::take(&mut profiled.samples);
    let (samples, report) =
        with_counts(session, attachment, samples, layout, &request, &is_cancelled)?;
    profiled.samples = samples;
    if report.as_ref().is_some_and(|report| report.fallback.is_some()) {
        profiled.prolong(attachment, &is_cancelled)?;
        if is_cancelled() {
            return Err(CliError::Other(CANCELLED.to_owned()));
        }
    }
    Ok(report)
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
