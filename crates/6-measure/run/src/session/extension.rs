//! More measuring time for a complete run: which microbenchmarks get how much of it.

use std::collections::BTreeMap;

use dbdyno_results::ExtensionRecord;
use dbdyno_types::Metric;
use dbdyno_units::Nanos;

use crate::plan::cases::is_read_after_writes;
use crate::plan::stopping_rule::Figures;

#[derive(Debug)]
pub(crate) struct Extension {
    pub record: ExtensionRecord,
    pub summary: String,
}

/// Data for planning an extension.
pub(crate) struct Measured<'a> {
    pub figures: Figures,
    /// The candidates' numbers, without the baseline and the control.
    pub candidates: &'a [u32],
    /// The shortest time that is worth a start, by case.
    pub shortest: &'a [Nanos],
}

/// A case with an interval.
#[derive(Clone, Copy, Debug)]
struct Open {
    case: usize,
    /// Half the width of its widest interval.
    width: f64,
    /// Its measuring time so far.
    time: Nanos,
}

impl Extension {
    /// Distributes `more` time over the microbenchmarks in which no difference was found between
    /// some candidate and the baseline; if there are none, over all. Among these, the widest
    /// intervals get the most time, so that they become equally wide. Intervals and differences are
    /// those of the metric to trust.
    ///
    /// Reads after writes need data that was written to, and the data of a complete run is gone. They
    /// are extended only if there is time to repeat the writes before them as long as before.
    pub fn plan(more: Nanos, measured: &Measured<'_>) -> Result<Self, String> {
        let cases = &measured.figures.cases;
        let mut open = measured.open(true);
        let undecided = !open.is_empty();
        if !undecided {
            open = measured.open(false);
        }
        if open.is_empty() {
            return Err("no microbenchmark has an interval that could become narrower".to_owned());
        }
        let (after_writes, others): (Vec<Open>, Vec<Open>) =
            open.iter().copied().partition(|one| is_read_after_writes(cases, one.case));
        let writes: BTreeMap<usize, Nanos> = (0..cases.len())
            .filter(|case| cases[*case].microbenchmark.writes())
            .map(|case| (case, measured.time(case)))
            .collect();
        let repeated: Nanos = writes.values().copied().sum();
        let mut additional: BTreeMap<usize, Nanos>;
        let mut left_out = 0;
        let mut also = "";
        if after_writes.is_empty() {
            additional = distribute(more, &others);
        } else if repeated <= Nanos::from_nanos(more.as_nanos() / 2) {
            additional = distribute(more - repeated, &open);
            for (case, time) in writes {
                let given = additional.entry(case).or_default();
                *given = (*given).max(time);
            }
            also = " and the writes before them";
        } else if others.is_empty() {
            return Err(format!(
                "only reads after writes are left to extend, and the writes before them must be \
                 repeated, which takes {repeated}: give at least {}",
                repeated.times(2)
            ));
        } else {
            left_out = after_writes.len();
            additional = distribute(more, &others);
        }
        let widest = additional.iter().max_by_key(|(_, time)| **time).map(|(case, _)| *case);
        additional.retain(|case, time| *time >= measured.shortest[*case] || Some(*case) == widest);
        let goal = |(case, time): (&usize, &Nanos)| (*case as u32, measured.time(*case) + *time);
        let goals: BTreeMap<u32, Nanos> = additional.iter().map(goal).collect();
        let of = cases.len();
        let mut summary = format!("{} of {of} microbenchmarks by {more}", goals.len());
        if undecided {
            summary.push_str(&format!(", only those without a difference{also}"));
        }
        if left_out > 0 {
            summary.push_str(&format!(
                "; without the reads after writes ({left_out}): repeating the writes takes {repeated}"
            ));
        }
        Ok(Self { record: ExtensionRecord { goals }, summary })
    }
}

impl Measured<'_> {
    /// The cases with an interval; with `undecided`, those with a candidate for which no difference
    /// was found.
    fn open(&self, undecided: bool) -> Vec<Open> {
        let figures = &self.figures;
        let [qps, cpu] =
            [Metric::Qps, Metric::Cpu].map(|metric| figures.noise_floor_of_run(metric));
        let differs = |case: usize, candidate: u32, metric: Metric| {
            let floor = match metric {
                Metric::Qps => &qps,
                Metric::Cpu => &cpu,
            };
            let own = figures.control_estimate(case, metric).map(|estimate| estimate.median);
            let estimate = figures.estimate(case, metric, candidate);
            let floor = floor.as_ref().map(|floor| floor.for_row(own));
            estimate.is_some_and(|estimate| estimate.difference(floor).is_some())
        };
        let width = |case: usize| {
            let of = |candidate: &u32| {
                let metric = figures.trusted_metric(case, *candidate);
                // A difference of throughput is a result, too.
                let found =
                    differs(case, *candidate, metric) || differs(case, *candidate, Metric::Qps);
                let estimate = figures.estimate(case, metric, *candidate)?;
                (!undecided || !found).then(|| estimate.half_width().as_fraction())
            };
            self.candidates.iter().filter_map(of).max_by(f64::total_cmp)
        };
        (0..figures.cases.len())
            .filter_map(|case| Some(Open { case, width: width(case)?, time: self.time(case) }))
            .collect()
    }

    fn time(&self, case: usize) -> Nanos {
        self.figures.rules[case].time()
    }
}

/// Divides `more` so that the widest intervals become equally wide, by case.
///
/// Widths are proportional to 1/√time. The k widest reach the common width L if each gets its time ×
/// ((width/L)² − 1), so L² = Σ time × width² ÷ (more + Σ time); k is the largest number for which the
/// last one is wider than L.
fn distribute(more: Nanos, open: &[Open]) -> BTreeMap<usize, Nanos> {
    let mut widest = open.to_vec();
    widest.sort_by(|a, b| b.width.total_cmp(&a.width));
    let common = |count: usize| {
        let of = &widest[..count];
        let time: f64 = of.iter().map(|one| one.time.as_secs_f64()).sum();
        let information: f64 =
            of.iter().map(|one| one.time.as_secs_f64() * one.width.powi(2)).sum();
        (information / (more.as_secs_f64() + time)).sqrt()
    };
    let count = (1..=widest.len()).rev().find(|count| widest[count - 1].width > common(*count));
    let Some(count) = count else {
        // All intervals are points.
        let share = Nanos::from_nanos(more.as_nanos() / open.len().max(1) as u64);
        return open.iter().map(|one| (one.case, share)).collect();
    };
    let level = common(count);
    let additional = |one: &Open| {
        let times = (one.width / level).powi(2) - 1.0;
        (one.case, Nanos::from_secs_f64(one.time.as_secs_f64() * times))
    };
    widest[..count].iter().map(additional).collect()
}

#[cfg(test)]
mod tests {
    use dbdyno_results::SliceRecord;
    use dbdyno_types::{ServerUsage, SliceMeasured};
    use dbdyno_units::Qps;
    use dbdyno_workloads::catalog::Catalog;

    use super::*;
    use crate::plan::cases::MicrobenchmarkCase;
    use crate::plan::stopping_rule::StoppingRule;
    use crate::plan::stopping_rule::tests::SCHEDULE;

    fn open(case: usize, width: f64) -> Open {
        Open { case, width, time: Nanos::from_secs(10) }
    }

    fn seconds(additional: &BTreeMap<usize, Nanos>) -> Vec<(usize, f64)> {
        additional.iter().map(|(case, time)| (*case, time.as_secs_f64().round())).collect()
    }

    #[test]
    fn widest_intervals_get_the_time_until_they_are_equally_wide() {
        let cases = [open(0, 0.02), open(1, 0.04), open(2, 0.01)];
        let divided = distribute(Nanos::from_secs(30), &cases);
        assert_eq!(seconds(&divided), [(1, 30.0)], "it reaches ±2%");
        let divided = distribute(Nanos::from_secs(40), &cases);
        assert_eq!(seconds(&divided), [(0, 2.0), (1, 38.0)]);
        let all = distribute(Nanos::from_secs(600), &cases);
        assert_eq!(all.len(), 3);
        assert!((all.values().copied().sum::<Nanos>().as_secs_f64() - 600.0).abs() < 1e-6);
    }

    #[test]
    fn intervals_without_width_get_equal_shares() {
        let divided = distribute(Nanos::from_secs(30), &[open(0, 0.0), open(1, 0.0)]);
        assert_eq!(seconds(&divided), [(0, 15.0), (1, 15.0)]);
    }

    /// The rule after 20 blocks of 0.1 s in total, with this ratio and spread.
    fn rule(ratio: f64, spread: f64) -> StoppingRule {
        rule_with_cpu(ratio, spread, None)
    }

    /// The same on servers whose CPU time per statement has this ratio and spread.
    fn rule_with_cpu(ratio: f64, spread: f64, cpu: Option<(f64, f64)>) -> StoppingRule {
        let slices: Vec<SliceRecord> = (0..20)
            .flat_map(|block| {
                let noise = spread * f64::from(block % 5 - 2);
                let server = |candidate: u32| {
                    let (ratio, spread) = cpu?;
                    let ratio = ratio + spread * f64::from(block % 5 - 2);
                    let micros = if candidate == 0 { 10_000.0 } else { 10_000.0 * ratio };
                    let cpu = Nanos::from_nanos((micros * 1_000.0) as u64);
                    Some(ServerUsage { cpu, ..ServerUsage::default() })
                };
                [(0, 1_000.0), (1, 1_000.0 * (ratio + noise))].map(|(candidate, qps)| SliceRecord {
                    microbenchmark: 0,
                    restart: 0,
                    block: block as u32,
                    position: 0,
                    candidate,
                    warmup: false,
                    measured: SliceMeasured {
                        wall: Nanos::from_millis(50),
                        throughput: Some(Qps::from_per_second(qps)),
                        statements: if cpu.is_some() { 50 } else { 0 },
                        server: server(candidate),
                        ..SliceMeasured::default()
                    },
                })
            })
            .collect();
        StoppingRule::of(&slices, &SCHEDULE, SCHEDULE.slice)
    }

    fn plan(names: &[&str], ratios: &[(f64, f64)], more: Nanos) -> Result<Extension, String> {
        let rules: Vec<StoppingRule> =
            ratios.iter().map(|(ratio, spread)| rule(*ratio, *spread)).collect();
        plan_of(names, rules, &[false; 2], more)
    }

    fn plan_of(
        names: &[&str],
        rules: Vec<StoppingRule>,
        is_server: &[bool],
        more: Nanos,
    ) -> Result<Extension, String> {
        let catalog = Catalog::builtin();
        let case = |name: &&str| {
            let microbenchmark = catalog.get(name).unwrap();
            MicrobenchmarkCase { microbenchmark: microbenchmark.clone(), clients: 1 }
        };
        let cases: Vec<MicrobenchmarkCase> = names.iter().map(case).collect();
        Extension::plan(
            more,
            &Measured {
                shortest: &vec![Nanos::from_millis(100); cases.len()],
                figures: Figures { cases, rules, is_server: is_server.to_vec(), control: None },
                candidates: &[1],
            },
        )
    }

    const READ: &str = "point-query.pre_range=100";
    const READ_2: &str = "scan_range=100";
    const WRITE: &str = "update-index_range=100";
    const READ_AFTER: &str = "point-query_range=100";

    #[test]
    fn clear_differences_are_not_extended() {
        let minute = Nanos::from_secs(60);
        let extension = plan(&[READ, READ], &[(0.5, 0.02), (1.0, 0.01)], minute).unwrap();
        let goals: Vec<(u32, Nanos)> = extension.record.goals.into_iter().collect();
        assert_eq!(goals, [(1, Nanos::from_secs(62))]);
        assert_eq!(
            extension.summary,
            "1 of 2 microbenchmarks by 60 s, only those without a difference"
        );
        let extension = plan(&[READ, READ], &[(0.5, 0.01), (0.6, 0.01)], minute).unwrap();
        assert_eq!(extension.record.goals.len(), 2, "there is nothing else to extend");
    }

    #[test]
    fn cpu_time_decides_for_writes_and_for_one_client_of_a_server() {
        let minute = Nanos::from_secs(60);
        let of = |names: &[&str], cpus: &[(f64, f64)]| {
            let rules: Vec<StoppingRule> =
                cpus.iter().map(|cpu| rule_with_cpu(1.0, 0.05, Some(*cpu))).collect();
            let extension = plan_of(names, rules, &[true; 2], minute).unwrap();
            extension.record.goals.into_keys().collect::<Vec<u32>>()
        };
        // Throughput is equally uncertain everywhere.
        assert_eq!(of(&[READ, WRITE], &[(1.0, 0.01), (0.8, 0.001)]), [0]);
        assert_eq!(of(&[READ, WRITE], &[(0.8, 0.001), (1.0, 0.01)]), [1]);
        // A clear difference of throughput is a result, too.
        let clear = rule_with_cpu(0.5, 0.001, Some((1.0, 0.01)));
        let open = rule_with_cpu(1.0, 0.01, Some((1.0, 0.01)));
        let extension = plan_of(&[WRITE, READ], vec![clear, open], &[true; 2], minute).unwrap();
        assert_eq!(extension.record.goals.into_keys().collect::<Vec<u32>>(), [1]);
    }

    #[test]
    fn reads_after_writes_are_extended_with_the_writes_or_not_at_all() {
        let names = [READ, WRITE, READ_AFTER];
        let ratios = [(1.0, 0.001), (0.5, 0.001), (1.0, 0.01)];
        let extension = plan(&names, &ratios, Nanos::from_secs(60)).unwrap();
        let goals = &extension.record.goals;
        assert_eq!(goals[&1], Nanos::from_secs(4), "the writes are repeated");
        assert!(goals[&2] > Nanos::from_secs(50));
        assert!(extension.summary.ends_with("without a difference and the writes before them"));

        let extension = plan(&names, &ratios, Nanos::from_secs(3)).unwrap();
        assert_eq!(extension.record.goals.keys().collect::<Vec<_>>(), [&0]);
        assert!(extension.summary.contains("without the reads after writes (1)"));

        let clear = [(0.5, 0.001), (0.5, 0.001), (1.0, 0.01)];
        let error = plan(&names, &clear, Nanos::from_secs(3)).unwrap_err();
        assert!(error.contains("give at least 4 s"), "{error}");
    }

    #[test]
    fn microbenchmark_without_any_interval_cannot_be_extended() {
        let error = plan(&[READ_2], &[(f64::NAN, 0.0)], Nanos::from_secs(60)).unwrap_err();
        assert!(error.contains("no microbenchmark has an interval"), "{error}");
    }
}
