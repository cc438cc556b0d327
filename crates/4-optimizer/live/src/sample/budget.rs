//! The rate and duration of sampling, from the share of CPU time that it may take, and the measured cost of a sample.

use std::time::{Duration, Instant};
use std::{fs, io};

use dbdyno_machine::ThreadUsage;
use dbdyno_stats::median;
use dbdyno_units::{Nanos, Share, counted};

use crate::LiveError;
use crate::sample::{EventOptions, Events};
use crate::sample::{SampleSource, Sampled, SamplingOptions, online_cpus, refusal};

/// The rate, in samples per second and CPU, at which a layout has enough samples after
/// 15 s on a server with one busy CPU.
pub const DEFAULT_FREQUENCY: u32 = 7_999;
const DEFAULT_TIME: Duration = Duration::from_secs(15);
/// The same if executions are counted afterwards, so that samples only tell which functions are hot.
const DEFAULT_TIME_COUNTED: Duration = Duration::from_secs(10);
/// Samples that tell this for a server with one busy CPU: with as many, the gains in docs/live-optimizer.md were
/// measured.
const SAMPLES_COUNTED: f64 = 32_000.0;
/// Sampling is not prolonged further than this.
const LONGEST_TIME: Duration = Duration::from_secs(300);
/// Default of [`SamplingRequest::max_overhead`], in percent.
const DEFAULT_BUDGET_PERCENT: f64 = 5.0;
/// The part of the budget for which the rate is chosen: a sample of a server, whose code and data fill the caches, costs
/// more than one of the idle thread in which the cost is measured.
const PLANNED_PART: f64 = 0.8;

/// How a user wants a process to be sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingRequest {
    /// Duration; `None`: 15 s, prolonged in proportion if the rate is lower than [`DEFAULT_FREQUENCY`]; 10 s, or as
    /// long as 32,000 samples of a CPU take, if executions are counted afterwards.
    pub time: Option<Duration>,
    /// Samples per second and CPU; `None`: up to [`DEFAULT_FREQUENCY`].
    pub frequency: Option<u32>,
    /// Share of a busy CPU's time that sampling may take. `None`: 5%, or unlimited if there is a
    /// frequency.
    pub max_overhead: Option<Share>,
    /// Whether executions are counted afterwards.
    pub counted: bool,
}

/// How a process will be sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingPlan {
    pub source: SampleSource,
    pub options: SamplingOptions,
    /// The cost per sample, as measured on this machine.
    pub cost: SamplingCost,
    /// How much longer to sample if executions cannot be counted. 0 if they are not to be counted, or the user chose
    /// the duration.
    pub prolonged_without_counts: Duration,
}

impl SamplingPlan {
    /// Measures the cost of a sample in this thread for 0.1 s, and chooses rate and duration. Does not
    /// affect the process.
    pub fn new(pid: u32, request: &SamplingRequest) -> Result<Self, LiveError> {
        let cpus = online_cpus().map_err(LiveError::system("listing the CPUs to sample", pid))?;
        let highest = highest_frequency();
        // At a low rate there would be too few samples to measure.
        let frequency = request.frequency.unwrap_or_default().max(DEFAULT_FREQUENCY).min(highest);
        let (source, cost) = measure(frequency, &cpus).map_err(|error| refusal(pid, error))?;
        let options = request.options(cost, highest);
        let uncounted = SamplingRequest { counted: false, ..*request }.options(cost, highest);
        let prolonged_without_counts = uncounted.time.saturating_sub(options.time);
        Ok(Self { source, options, cost, prolonged_without_counts })
    }

    /// Expected share of a busy CPU's time that sampling takes.
    pub fn overhead(&self) -> Share {
        self.cost.overhead(self.options.frequency)
    }

    /// What sampling will cost, before it starts.
    pub fn announcement(&self, pid: u32) -> String {
        let (options, cost) = (&self.options, &self.cost);
        let more = self.prolonged_without_counts;
        let longer = (!more.is_zero()).then(|| {
            format!(
                ", or {} in all if counting executions turns out to be impossible or too expensive",
                seconds(options.time + more)
            )
        });
        let longer = longer.unwrap_or_default();
        let mut text = format!(
            "sampling process {pid} for {}{longer}, {} times per second and CPU; this takes about {} of \
             the CPU time that it uses ({} per sample, as measured on this machine)",
            seconds(options.time),
            options.frequency,
            percent(self.overhead()),
            cost.per_sample,
        );
        if let Some(most) = options.max_overhead {
            text.push_str(&format!("; the limit is {most} (--max-overhead)"));
        }
        text
    }

    /// What was sampled, and what it cost.
    pub fn result(&self, sampled: &Sampled) -> String {
        let samples = counted(sampled.samples.total(), "sample");
        let mut text = format!("{samples} of {}", sampled.source);
        if let Some(overhead) = sampled.overhead {
            let overhead = percent(overhead);
            text.push_str(&format!("; sampling took {overhead} of a busy CPU's time"));
            // As printed: the limit is not exceeded by less than a digit.
            let exceeds =
                |most: &Share| sampled.overhead > Some(*most) && overhead != percent(*most);
            if let Some(most) = self.options.max_overhead.filter(exceeds) {
                text.push_str(&format!(
                    ", above the limit of {most}: samples cost more than measured beforehand"
                ));
            }
        }
        if sampled.frequency < self.options.frequency {
            text.push_str(&format!(
                "; the rate was lowered to {} per second because of the limit",
                sampled.frequency
            ));
        }
        text
    }
}

fn percent(share: Share) -> String {
    format!("{:.1}%", share.as_percent())
}

fn seconds(time: Duration) -> String {
    let text = format!("{:.1}", time.as_secs_f64());
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

impl SamplingRequest {
    /// Rate, at most the `highest`, and duration at this cost.
    fn options(&self, cost: SamplingCost, highest: u32) -> SamplingOptions {
        let default_budget = Share::from_percent(DEFAULT_BUDGET_PERCENT);
        let budget = self.max_overhead.or(self.frequency.is_none().then_some(default_budget));
        let requested = self.frequency.unwrap_or(DEFAULT_FREQUENCY).min(highest);
        let frequency = budget.map_or(requested, |budget| {
            let overhead = cost.overhead(requested).as_fraction();
            lowered(requested, overhead, budget)
        });
        let rate = f64::from(frequency);
        let (shortest, samples) = match self.counted {
            true => (DEFAULT_TIME_COUNTED, SAMPLES_COUNTED),
            false => (DEFAULT_TIME, DEFAULT_TIME.as_secs_f64() * f64::from(DEFAULT_FREQUENCY)),
        };
        let default = Duration::from_secs_f64(samples / rate).max(shortest).min(LONGEST_TIME);
        let time = self.time.unwrap_or(default);
        SamplingOptions { time, frequency, cost: Some(cost), max_overhead: budget }
    }
}

/// The highest rate that the kernel permits; with a higher one, no event is opened. The kernel lowers it by itself if
/// interrupts take long.
pub(super) fn highest_frequency() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(u32::MAX)
}

/// The highest rate within the planned part of a budget, given the overhead at another rate.
pub(super) fn lowered(frequency: u32, overhead: f64, budget: Share) -> u32 {
    let planned = budget.as_fraction() * PLANNED_PART;
    if overhead <= planned {
        return frequency;
    }
    let rate = f64::from(frequency) * planned / overhead;
    (rate.round() as u32).max(1)
}

/// Shortest gap between two readings of the clock that is an interrupt: a reading takes some 30 ns.
const SHORTEST_INTERRUPT: Duration = Duration::from_nanos(400);
/// Longest gap that is an interrupt: a longer one is another virtual machine's time on the CPU.
const LONGEST_INTERRUPT: Duration = Duration::from_micros(250);
/// Duration of one of the measurements whose median counts.
const TIME: Duration = Duration::from_millis(10);
/// Number of measurements without and with sampling.
const REPETITIONS: usize = 5;

/// The cost of sampling on this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingCost {
    pub per_sample: Nanos,
    /// Share of a busy thread's time that other interrupts take.
    pub other: Share,
}

impl SamplingCost {
    /// Measures it in this thread, with and without sampling this thread only.
    pub(super) fn measure(options: EventOptions, cpus: &[usize]) -> io::Result<Self> {
        let own_thread = rustix::thread::gettid().as_raw_nonzero().get();
        let mut events = Events::for_threads(options, cpus, &[own_thread])?;
        let (mut other, mut all) = (Vec::new(), Vec::new());
        for _ in 0..REPETITIONS {
            other.push(interrupted(TIME));
            events.enable()?;
            all.push(interrupted(TIME));
            events.disable()?;
        }
        let [other, all] = [other, all].map(|shares| median(&shares).unwrap_or_default());
        Ok(Self::of(other, all, options.frequency))
    }

    /// The cost from the share of time that interrupts take without and with sampling.
    fn of(other: f64, all: f64, frequency: u32) -> Self {
        let per_second = (all - other).max(0.0) / f64::from(frequency);
        let per_sample = Nanos::from(Duration::from_secs_f64(per_second));
        Self { per_sample, other: Share::from_fraction(other) }
    }

    /// Share of a busy CPU's time at a rate of samples per second.
    pub fn overhead(&self, frequency: u32) -> Share {
        Share::from_fraction(self.per_sample.as_secs_f64() * f64::from(frequency))
    }

    /// The present overhead, if all threads of the machine are sampled.
    pub(super) fn present_overhead(&self, time: Duration) -> Share {
        Share::from_fraction((interrupted(time) - self.other.as_fraction()).max(0.0))
    }
}

/// Share of this thread's time that interrupts take.
fn interrupted(time: Duration) -> f64 {
    let (mut own, mut lost) = (Duration::ZERO, Duration::ZERO);
    let switches = || ThreadUsage::now().context_switches;
    let mut switched = switches();
    let start = Instant::now();
    let mut last = start;
    while last - start < time {
        let now = Instant::now();
        let gap = now - last;
        last = now;
        if gap < SHORTEST_INTERRUPT {
            own += gap;
            continue;
        }
        // A gap in which another thread ran is not an interrupt.
        let before = std::mem::replace(&mut switched, switches());
        if switched == before && gap <= LONGEST_INTERRUPT {
            own += gap;
            lost += gap;
        }
        last = Instant::now();
    }
    if own.is_zero() { 0.0 } else { lost.as_secs_f64() / own.as_secs_f64() }
}

/// The source of samples and its cost on this machine, measured in this thread at a rate.
pub(super) fn measure(frequency: u32, cpus: &[usize]) -> io::Result<(SampleSource, SamplingCost)> {
    SampleSource::best(|source| SamplingCost::measure(EventOptions { source, frequency }, cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(request: SamplingRequest, micros: u64) -> (u32, u64) {
        limited(request, micros, 100_000)
    }

    fn limited(request: SamplingRequest, micros: u64, highest: u32) -> (u32, u64) {
        let per_sample = Nanos::from_micros(micros);
        let cost = SamplingCost { per_sample, other: Share::from_percent(1.0) };
        let options = request.options(cost, highest);
        (options.frequency, options.time.as_secs())
    }

    #[test]
    fn cheap_samples_are_taken_at_the_default_rate() {
        assert_eq!(options(SamplingRequest::default(), 2), (7_999, 15));
    }

    #[test]
    fn dear_samples_are_taken_at_a_lower_rate_for_longer() {
        assert_eq!(options(SamplingRequest::default(), 20), (2_000, 59));
        let max_overhead = Some(Share::from_percent(1.0));
        let little = SamplingRequest { max_overhead, ..SamplingRequest::default() };
        assert_eq!(options(little, 20), (400, 299));
        let time = Some(Duration::from_secs(3));
        assert_eq!(options(SamplingRequest { time, ..little }, 20), (400, 3));
        let max_overhead = Some(Share::from_percent(0.01));
        assert_eq!(options(SamplingRequest { max_overhead, ..little }, 20), (4, 300));
    }

    #[test]
    fn fewer_samples_are_taken_if_executions_are_counted() {
        let counted = SamplingRequest { counted: true, ..SamplingRequest::default() };
        assert_eq!(options(counted, 2), (7_999, 10));
        assert_eq!(options(counted, 20), (2_000, 16));
        let time = Some(Duration::from_secs(20));
        assert_eq!(options(SamplingRequest { time, ..counted }, 20), (2_000, 20));
    }

    #[test]
    fn rate_is_at_most_the_highest_one_of_the_kernel() {
        assert_eq!(limited(SamplingRequest::default(), 2, 4_000), (4_000, 29));
        let chosen = SamplingRequest { frequency: Some(11_999), ..SamplingRequest::default() };
        assert_eq!(limited(chosen, 2, 4_000), (4_000, 29));
        assert!(highest_frequency() > 0);
    }

    #[test]
    fn chosen_rate_is_limited_only_by_a_chosen_budget() {
        let chosen = SamplingRequest { frequency: Some(11_999), ..SamplingRequest::default() };
        assert_eq!(options(chosen, 20), (11_999, 15));
        let max_overhead = Some(Share::from_percent(5.0));
        assert_eq!(options(SamplingRequest { max_overhead, ..chosen }, 20), (2_000, 59));
    }

    #[test]
    fn cost_of_sampling_is_announced_and_reported() {
        let cost =
            SamplingCost { per_sample: Nanos::from_micros(20), other: Share::from_percent(1.0) };
        let options = SamplingOptions {
            time: Duration::from_secs(59),
            frequency: 2_000,
            cost: Some(cost),
            max_overhead: Some(Share::from_percent(5.0)),
        };
        let prolonged_without_counts = Duration::ZERO;
        let plan =
            SamplingPlan { source: SampleSource::Clock, options, cost, prolonged_without_counts };
        assert_eq!(
            plan.announcement(12),
            "sampling process 12 for 59 s, 2000 times per second and CPU; this takes about 4.0% of \
             the CPU time that it uses (20 µs per sample, as measured on this machine); the limit \
             is 5% (--max-overhead)"
        );
        let prolonged_without_counts = Duration::from_millis(19_200);
        let counted = SamplingPlan { prolonged_without_counts, ..plan }.announcement(12);
        let start = "sampling process 12 for 59 s, or 78.2 s in all if counting executions turns out to be \
                     impossible or too expensive, 2000 times per second and CPU; ";
        assert!(counted.starts_with(start), "{counted}");
        let sampled = Sampled {
            source: SampleSource::Clock,
            samples: dbdyno_relayout::Samples::default(),
            lost: 0,
            events: 1,
            frequency: 1_000,
            overhead: Some(Share::from_percent(4.0)),
        };
        assert_eq!(
            plan.result(&sampled),
            "0 samples of the CPU clock; sampling took 4.0% of a busy CPU's time; the rate was \
             lowered to 1000 per second because of the limit"
        );
        let with = |percent| {
            let overhead = Some(Share::from_percent(percent));
            plan.result(&Sampled { overhead, frequency: 2_000, ..sampled.clone() })
        };
        assert!(with(5.04).ends_with("; sampling took 5.0% of a busy CPU's time"));
        assert!(with(5.5).ends_with(
            "; sampling took 5.5% of a busy CPU's time, above the limit of 5%: samples cost more than \
             measured beforehand"
        ));
    }

    #[test]
    fn overhead_is_proportional_to_the_rate() {
        let cost = SamplingCost::of(0.01, 0.17, 8_000);
        assert_eq!(cost.per_sample, Nanos::from_micros(20));
        assert_eq!(cost.overhead(2_000).to_string(), "4%");
        // Interrupts that are rarer with sampling than without are noise.
        assert_eq!(SamplingCost::of(0.02, 0.01, 8_000).per_sample, Nanos::ZERO);
    }

    #[test]
    fn cost_of_a_sample_is_measured() {
        let (frequency, cpus) = (highest_frequency().min(7_999), online_cpus().unwrap());
        // On a busy machine, the difference of two shares may be noise.
        let mut costs = (0..20).map(|_| match measure(frequency, &cpus) {
            Ok((_, cost)) => cost.per_sample,
            Err(error) => panic!("{error}"),
        });
        let plausible = Nanos::from_nanos(50)..Nanos::from_micros(125);
        assert!(costs.any(|cost| plausible.contains(&cost)));
    }
}
