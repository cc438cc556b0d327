//! Where a candidate needs another CPU time per query than the baseline.
//!
//! Shares of functions come from samples, and the CPU time per query from slices in which nothing was sampled, of the
//! same start: so rows add up to what was measured. Samples of a function vary as counts do; how much more they vary
//! between starts is estimated over all functions together, because few starts tell little of a single one.
//!
//! The control is the noise floor. If its functions differ more than samples explain, intervals are that much wider. A
//! difference is certain only if it is also larger than the control's of the same row, because equal instances may
//! truthfully differ there: by their history, or by where their memory lies.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::f64::consts::SQRT_2;

use dbdyno_profile::{Layers, TitledStacks, Titles, kernel_entry};
use dbdyno_results::{CandidateRecord, ProfileRecord, Role, StoredLayers};
use dbdyno_stats::{false_discovery_level, median};
use dbdyno_types::profile::{Frame, Function, ModuleBuild, NOT_SAMPLED, Profile, Stack};
use dbdyno_units::{Nanos, Ratio, Share};

use super::{Measured, Slice};
use crate::model::{LeastCertain, ProfileDifference, ProfileRow, Stacks};

/// Share of false discoveries among the differences that are called certain.
const FALSE_DISCOVERIES: f64 = 0.05;

/// Samples of a function on both sides with which its variation tells something.
const ENOUGH: f64 = 10.0;

/// Degrees of freedom with which the variation of a single function tells something.
const FREEDOM: f64 = 3.0;

/// Functions of the control with which their variation tells something.
const ENOUGH_FUNCTIONS: usize = 20;

/// The two-sided 95% quantile of the normal distribution.
const NORMAL: f64 = 1.959_964;

/// The median of the squares of values of the normal distribution.
const MEDIAN_SQUARE: f64 = 0.454_936;

/// Functions with what they call have at least this share of the CPU time, or certainly differ.
const LEAST_SHARE: f64 = 0.001;

/// Of a difference that moved, the rest of the caller offsets at least this part.
const LEAST_OFFSET: f64 = 0.25;

/// More samples of a start are not believed, so that sums do not overflow.
const MOST_SAMPLES: u64 = 1 << 40;

/// The function of samples without a stack.
const NO_STACK: &str = "without a stack";

/// What was sampled of one candidate in one start.
pub(crate) struct Sampled<'a> {
    /// CPU time per query in µs, in slices that were not sampled.
    pub(crate) cpu: f64,
    pub(crate) profile: &'a Profile,
}

/// Samples by name.
pub(crate) type Samples = BTreeMap<String, f64>;

/// The samples of a start, added up.
#[derive(Default)]
pub(crate) struct Start {
    /// CPU time per query in µs.
    pub cpu: f64,
    pub samples: f64,
    pub layers: Samples,
    /// Of the kernel.
    pub system_calls: Samples,
    pub functions: Samples,
    pub with_callees: Samples,
    /// The functions with neither a name nor a source file, and the time that was not sampled.
    pub unknown: BTreeSet<String>,
}

/// The rules for layers of each system that was sampled, the user's first: to compile them takes longer than to use them.
/// Those of a damaged run are left out.
pub(super) fn layers_of<'a>(
    sampled: impl Iterator<Item = &'a ProfileRecord>,
    candidates: &[CandidateRecord],
    rules: Option<&StoredLayers>,
) -> BTreeMap<String, Layers> {
    let systems: BTreeSet<&String> =
        sampled.filter_map(|one| Some(&candidates.get(one.candidate as usize)?.system)).collect();
    let of = |system: &String| {
        let own = rules.and_then(|layers| Layers::with_own(&layers.rules, system).ok());
        (system.clone(), own.unwrap_or_else(|| Layers::of(system)))
    };
    systems.into_iter().map(of).collect()
}

impl Measured {
    /// `None` without samples of both in a common start. The control is the noise floor of the others.
    pub(super) fn profile_difference(
        &self,
        candidate: usize,
        [own, baseline]: [&CandidateRecord; 2],
        layers: &BTreeMap<String, Layers>,
        control: Option<usize>,
    ) -> Option<ProfileDifference> {
        let starts = self.sampled_starts(candidate);
        if starts.is_empty() {
            return None;
        }
        let of_baseline = layers.get(&baseline.system)?;
        let layers = [layers.get(&own.system)?, of_baseline];
        let titles = Titles::of(starts.iter().flatten().map(|one| one.profile));
        // By the same titles: those of functions without a name depend on what is compared.
        let control = control.map(|control| self.sampled_starts(control));
        let control = control.filter(|starts| !starts.is_empty());
        let control = control.map(|starts| difference(&starts, [of_baseline; 2], &titles, None));
        let mut found = difference(&starts, layers, &titles, control.as_ref());
        found.instructions = self.instructions(candidate, &titles);
        found.cost = [candidate, 0].map(|number| self.cost_of_sampling(number));
        found.sampled_cpu = [candidate, 0].map(|number| self.sampled_cpu(number));
        found.asked_cpu = self.asked_cpu;
        let [us, baseline_us] = found.total_us;
        found.interval_us = self.relative[candidate].cpu.map(|ratio| {
            let end =
                |end: Ratio| us - baseline_us + baseline_us * (end.get() - ratio.median.get());
            [ratio.low, ratio.high].map(end)
        });
        if own.role == Role::Control {
            found.stacks = Default::default();
        }
        Some(found)
    }

    /// What was sampled of a candidate and of the baseline in each common start.
    fn sampled_starts(&self, candidate: usize) -> Vec<[Sampled<'_>; 2]> {
        let pairs = self.records(candidate).filter_map(|record| {
            let base = self.records(0).find(|one| one.restart == record.restart)?;
            Some([self.sampled(record)?, self.sampled(base)?])
        });
        let mut starts: Vec<[Sampled<'_>; 2]> = pairs.collect();
        self.scale(&mut starts, [candidate, 0]);
        starts
    }

    /// Lets the mean of starts be the CPU time per query that is reported, in which those with more statements weigh more.
    fn scale(&self, starts: &mut [[Sampled<'_>; 2]], candidates: [usize; 2]) {
        for (side, number) in candidates.into_iter().enumerate() {
            let absolute = self.own.get(number).and_then(|own| own.absolute.as_ref());
            let measured = absolute.and_then(|one| {
                Some(one.cpu_us_per_query? - one.background_cpu_us_per_query.unwrap_or(0.0))
            });
            let sum: f64 = starts.iter().map(|pair| pair[side].cpu).sum();
            if let Some(measured) = measured.filter(|measured| *measured > 0.0 && sum > 0.0) {
                let factor = measured * starts.len() as f64 / sum;
                starts.iter_mut().for_each(|pair| pair[side].cpu *= factor);
            }
        }
    }

    pub(super) fn records(&self, candidate: usize) -> impl Iterator<Item = &ProfileRecord> {
        self.profiles.iter().filter(move |one| one.candidate as usize == candidate)
    }

    /// `None` without a CPU time, and for a damaged profile.
    fn sampled<'a>(&self, record: &'a ProfileRecord) -> Option<Sampled<'a>> {
        let cpu = self.cpu_of_start(record.candidate as usize, record.restart)?;
        is_consistent(&record.profile).then_some(Sampled { cpu, profile: &record.profile })
    }

    /// The measured slices of a candidate in a start, in which nothing was sampled or recorded.
    pub(super) fn slices_of_start(
        &self,
        candidate: usize,
        restart: u32,
    ) -> impl Iterator<Item = &Slice> {
        let is_of =
            move |one: &&Slice| one.candidate as usize == candidate && one.restart == restart;
        self.slices.iter().filter(is_of)
    }

    /// CPU time per query in µs of a candidate in a start, without samples.
    pub(super) fn cpu_of_start(&self, candidate: usize, restart: u32) -> Option<f64> {
        let (mut statements, mut sum) = (0.0, 0.0);
        for slice in self.slices_of_start(candidate, restart) {
            let count = slice.statements as f64;
            sum += slice.cpu_per_query? * count;
            statements += count;
        }
        (statements > 0.0).then(|| sum / statements)
    }

    /// The CPU time in slices that were sampled. Those of a damaged run may be too long to be added up.
    fn sampled_cpu(&self, candidate: usize) -> Nanos {
        let nanos = self.records(candidate).map(|record| record.cpu.as_nanos());
        Nanos::from_nanos(nanos.fold(0, u64::saturating_add))
    }
}

/// Whether a stored profile can be added up.
fn is_consistent(profile: &Profile) -> bool {
    let is_known = |frame: &Frame| (*frame as usize) < profile.functions.len();
    let mut stacks = profile.stacks.iter();
    let samples = stacks.clone().try_fold(0_u64, |sum, stack| sum.checked_add(stack.samples));
    samples.is_some_and(|samples| (1..=MOST_SAMPLES).contains(&samples))
        && profile.cut <= MOST_SAMPLES
        && stacks.all(|stack| stack.frames.iter().all(is_known))
}

fn samples_of(profile: &Profile) -> u64 {
    profile.stacks.iter().map(|stack| stack.samples).sum()
}

/// The samples that were taken: without those that the time without samples stands for.
fn taken(profile: &Profile) -> u64 {
    let name = |frame: &u32| profile.functions[*frame as usize].name.as_deref();
    let is_taken = |stack: &&Stack| stack.frames.first().and_then(name) != Some(NOT_SAMPLED);
    profile.stacks.iter().filter(is_taken).map(|stack| stack.samples).sum()
}

/// The difference of a candidate from the baseline, with rules for the layers of each, in starts of both; without its
/// interval, the cost of sampling and instructions.
pub(crate) fn difference(
    starts: &[[Sampled<'_>; 2]],
    layers: [&Layers; 2],
    titles: &Titles,
    control: Option<&ProfileDifference>,
) -> ProfileDifference {
    let count = starts.len() as f64;
    let add = |pair: &[Sampled<'_>; 2]| [0, 1].map(|at| Start::of(&pair[at], layers[at], titles));
    let added: Vec<[Start; 2]> = starts.iter().map(add).collect();
    let (layers, _) = rows(&added, |start| &start.layers, control.map(|one| &one.layers[..]));
    let (system_calls, _) =
        rows(&added, |start| &start.system_calls, control.map(|one| &one.system_calls[..]));
    let (mut functions, deviations) =
        rows(&added, |start| &start.functions, control.map(|one| &one.functions[..]));
    let (mut with_callees, _) =
        rows(&added, |start| &start.with_callees, control.map(|one| &one.with_callees[..]));
    let total_us = [0, 1].map(|side| added.iter().map(|pair| pair[side].cpu).sum::<f64>() / count);
    let least = LEAST_SHARE * total_us[0].max(total_us[1]);
    with_callees.retain(|row| row.certain || row.us.max(row.baseline_us) >= least);
    let stacks = [0, 1].map(|side| stacks(starts, side, titles));
    mark_moved(&mut with_callees, &mut functions, &stacks);
    let unknown: BTreeSet<&String> =
        added.iter().flatten().flat_map(|start| &start.unknown).collect();
    let unknown = share_of_differences(&functions, |row| unknown.contains(&row.name));
    let samples =
        [0, 1].map(|side| starts.iter().map(|pair| taken(pair[side].profile)).sum::<u64>());
    let cut: u64 = starts.iter().flatten().map(|start| start.profile.cut).sum();
    let lost = starts.iter().flatten().map(|start| start.profile.lost);
    ProfileDifference {
        total_us,
        samples,
        cut: Share::from_fraction(cut as f64 / samples.iter().sum::<u64>().max(1) as f64),
        lost: lost.fold(0, u64::saturating_add),
        layers,
        system_calls,
        functions,
        with_callees,
        unknown,
        unnamed: [0, 1].map(|side| unnamed(starts, side)),
        least: least_certain(&added, deviations),
        stacks,
        ..ProfileDifference::default()
    }
}

/// Marks functions with what they call of whose difference at least half is offset below their nearest callers that
/// both sides have. A caller that is marked says nothing about what it calls: the next one does. Functions without what
/// they call moved with what they call, or to or from it; those of one side only, to or from such a function below the
/// same caller.
fn mark_moved(rows: &mut [ProfileRow], functions: &mut [ProfileRow], stacks: &[Stacks; 2]) {
    let stacks = numbered(rows, stacks);
    let has_both = |row: &ProfileRow| row.us > 0.0 && row.baseline_us > 0.0;
    // The caller of each row below which it has most time.
    let mut callers = vec![(usize::MAX, 0.0); rows.len()];
    loop {
        // CPU time of each row below each caller, of the candidate and the baseline.
        let mut times: BTreeMap<(usize, usize), [f64; 2]> = BTreeMap::new();
        for stack in &stacks {
            let mut caller: Option<usize> = None;
            for at in stack.frames.iter().copied().filter(|at| *at < rows.len()) {
                if let Some(caller) = caller.filter(|caller| *caller != at) {
                    times.entry((at, caller)).or_default()[stack.side] += stack.us;
                }
                if has_both(&rows[at]) && !rows[at].moved {
                    caller = Some(at);
                }
            }
        }
        let mut offset = vec![0.0; rows.len()];
        callers.fill((usize::MAX, 0.0));
        for ((at, caller), times) in times {
            if times[0] + times[1] > callers[at].1 {
                callers[at] = (caller, times[0] + times[1]);
            }
            if rows[at].certain && !rows[at].moved {
                let is_part = |below: &[usize]| below.contains(&at);
                let elsewhere = |sign: f64| elsewhere(&stacks, caller, sign, is_part);
                offset[at] += offset_below(&rows[caller], &rows[at], times, elsewhere);
            }
        }
        let mut has_more = false;
        for (row, offset) in rows.iter_mut().zip(offset) {
            if offset > 0.0 && offset >= row.difference().abs() / 2.0 {
                (row.moved, has_more) = (true, true);
            }
        }
        if !has_more {
            break;
        }
    }
    // One of the other side only may be the same function under another name: both moved, or neither.
    let is_alone = |rows: &[ProfileRow], at: usize| {
        let us = rows[at].difference();
        let may_be_same = |one: &usize| {
            callers[*one].0 == callers[at].0
                && rows[*one].certain
                && !has_both(&rows[*one])
                && -rows[*one].difference() * us.signum() >= us.abs() / 2.0
        };
        let mut others = (0..rows.len()).filter(may_be_same).peekable();
        rows[at].moved
            && !has_both(&rows[at])
            && others.peek().is_some()
            && others.all(|one| !rows[one].moved)
    };
    while let Some(at) = (0..rows.len()).find(|at| is_alone(rows, *at)) {
        rows[at].moved = false;
    }
    let index = |name: &str| rows.iter().position(|one| one.name == name);
    let mut found: Vec<(usize, f64)> = Vec::new();
    for row in functions.iter_mut().filter(|row| row.certain) {
        let Some(at) = index(row.name.as_str()).filter(|at| has_both(&rows[*at])) else { continue };
        let is_part = |below: &[usize]| below.last().is_none_or(|last| *last == at);
        let elsewhere = |sign: f64| elsewhere(&stacks, at, sign, is_part);
        let caller = if rows[at].moved { callers[at].0 } else { at };
        row.moved = match rows[at].moved {
            true => rows[at].difference() * row.difference() > 0.0,
            false => offset_below(&rows[at], row, [row.us, row.baseline_us], elsewhere) > 0.0,
        };
        if row.moved {
            found.push((caller, row.difference()));
        }
    }
    for row in functions.iter_mut().filter(|row| row.certain) {
        let Some(at) = index(row.name.as_str()).filter(|at| !has_both(&rows[*at])) else {
            continue;
        };
        let us = row.difference();
        row.moved = found.iter().any(|(caller, other)| {
            *caller == callers[at].0 && -other * us.signum() >= us.abs() / 2.0
        });
    }
}

/// A stack of the candidate or the baseline.
struct Numbered {
    side: usize,
    /// The outermost first. Functions with a row have its index, others larger numbers.
    frames: Vec<usize>,
    us: f64,
}

fn numbered(rows: &[ProfileRow], stacks: &[Stacks; 2]) -> Vec<Numbered> {
    let mut numbers: HashMap<&str, usize> =
        rows.iter().enumerate().map(|(at, row)| (row.name.as_str(), at)).collect();
    let mut all = Vec::new();
    for (side, Stacks { functions, stacks }) in stacks.iter().enumerate() {
        let mut number = |name| {
            let next = numbers.len();
            *numbers.entry(name).or_insert(next)
        };
        let functions: Vec<usize> = functions.iter().map(|name| number(name.as_str())).collect();
        all.extend(stacks.iter().map(|stack| {
            let frames = stack.frames.iter().map(|frame| functions[*frame as usize]).collect();
            Numbered { side, frames, us: stack.us }
        }));
    }
    all
}

/// The part of a row's difference below a caller, with these times, if it is offset there, otherwise 0: if the rest of
/// the caller certainly differs the other way by at least [`LEAST_OFFSET`] of it, and at least half of that is the same
/// functions' time `elsewhere`. Time of functions of one side only may be new work: the rest must offset half of it.
/// Without the latter, a slower function would be offset by an unrelated one that became faster.
fn offset_below(
    caller: &ProfileRow,
    row: &ProfileRow,
    times: [f64; 2],
    elsewhere: impl Fn(f64) -> [f64; 2],
) -> f64 {
    let sign = row.difference().signum();
    let part = ((times[0] - times[1]) * sign).min(row.difference().abs());
    let rest = part - caller.difference() * sign;
    // Variances add up as samples do.
    let share = 1.0 - (times[0] + times[1]) / (caller.us + caller.baseline_us);
    let half_width_us = caller.half_width_us * share.max(0.0).sqrt();
    let least_rest = rest - half_width_us;
    if part <= 0.0 || least_rest <= LEAST_OFFSET * part {
        return 0.0;
    }
    let [same, with_only] = elsewhere(sign);
    let known = if least_rest > part / 2.0 { with_only } else { same };
    if known >= part.min(rest) / 2.0 { part } else { 0.0 }
}

/// How much of the difference of a part of what a caller calls, with this sign, may be time that the other side spends
/// in the rest: in the same innermost functions, and with those that only one side has below the caller.
fn elsewhere(
    stacks: &[Numbered],
    caller: usize,
    sign: f64,
    is_part: impl Fn(&[usize]) -> bool,
) -> [f64; 2] {
    // By innermost function: of the part and the rest, of the candidate and the baseline.
    let mut times: BTreeMap<usize, [[f64; 2]; 2]> = BTreeMap::new();
    for Numbered { side, frames, us } in stacks {
        let Some(at) = frames.iter().position(|one| *one == caller) else { continue };
        let below = &frames[at + 1..];
        let innermost = below.last().copied().unwrap_or(caller);
        times.entry(innermost).or_default()[usize::from(!is_part(below))][*side] += us;
    }
    let (mut same, mut only_part, mut only_rest) = (0.0, 0.0, 0.0);
    for [part, rest] in times.values() {
        let [more, less] = [(part[0] - part[1]) * sign, (rest[1] - rest[0]) * sign];
        if (0..2).any(|side| part[side] + rest[side] == 0.0) {
            (only_part, only_rest) = (only_part + more, only_rest + less);
        } else {
            same += more.min(less).max(0.0);
        }
    }
    [same, same + f64::max(only_part, 0.0) + f64::max(only_rest, 0.0)]
}

/// The part that some rows have of all differences, without their signs.
pub(crate) fn share_of_differences(
    rows: &[ProfileRow],
    of: impl Fn(&&ProfileRow) -> bool,
) -> Share {
    let size = |row: &ProfileRow| row.difference().abs();
    let all: f64 = rows.iter().map(size).sum();
    let part: f64 = rows.iter().filter(of).map(size).sum();
    Share::from_fraction(if all > 0.0 { part / all } else { 0.0 })
}

/// The share of one side's CPU time in functions without a name, in files of which the other does not run the same build.
fn unnamed(starts: &[[Sampled<'_>; 2]], side: usize) -> Share {
    let (mut part, mut all) = (0.0, 0.0);
    for pair in starts {
        let (Sampled { cpu, profile }, other) = (&pair[side], pair[1 - side].profile);
        let is_other_build = |one: &ModuleBuild| !other.modules.contains(one);
        let is_unnamed = |frame: &Frame| {
            let Function { module, name, .. } = &profile.functions[*frame as usize];
            let mut builds = profile.modules.iter().filter(|one| one.module == *module);
            name.is_none() && builds.any(is_other_build)
        };
        let stacks = profile.stacks.iter();
        let of_stacks = stacks.filter(|stack| stack.frames.first().is_some_and(is_unnamed));
        let samples: u64 = of_stacks.map(|stack| stack.samples).sum();
        part += cpu * samples as f64 / samples_of(profile) as f64;
        all += *cpu;
    }
    Share::from_fraction(if all > 0.0 { part / all } else { 0.0 })
}

/// The stacks of the candidate or of the baseline, over all starts.
fn stacks(starts: &[[Sampled<'_>; 2]], side: usize, titles: &Titles) -> Stacks {
    let titled: Vec<TitledStacks> =
        starts.iter().map(|start| titles.stacks(start[side].profile)).collect();
    let mut functions: Vec<String> = titled.iter().flat_map(|one| one.titles.clone()).collect();
    functions.sort_unstable();
    functions.dedup();
    let mut sums: BTreeMap<Vec<u32>, (u64, f64)> = BTreeMap::new();
    for (start, TitledStacks { titles, stacks }) in starts.iter().zip(&titled) {
        let Sampled { cpu, profile } = &start[side];
        let number = |title: &String| functions.partition_point(|one| one < title) as u32;
        let numbers: Vec<u32> = titles.iter().map(number).collect();
        let of_sample = cpu / (samples_of(profile) as f64 * starts.len() as f64);
        for (stack, frames) in profile.stacks.iter().zip(stacks) {
            let frames = frames.iter().rev().map(|frame| numbers[*frame as usize]);
            let sum = sums.entry(frames.collect()).or_default();
            sum.0 += stack.samples;
            sum.1 += of_sample * stack.samples as f64;
        }
    }
    Stacks::without_rare(&functions, sums)
}

impl Start {
    fn of(Sampled { cpu, profile }: &Sampled<'_>, layers: &Layers, titles: &Titles) -> Self {
        let Profile { functions, stacks, .. } = profile;
        // Functions of the same name are one.
        let TitledStacks { titles, stacks: titled } = titles.stacks(profile);
        let mut start = Self { cpu: *cpu, ..Self::default() };
        let (mut own, mut with_callees) = (vec![0.0; titles.len()], vec![0.0; titles.len()]);
        for (stack, titled) in stacks.iter().zip(&titled) {
            let samples = stack.samples as f64;
            start.samples += samples;
            match stack.frames.first().zip(titled.first()) {
                Some((innermost, title)) => {
                    own[*title as usize] += samples;
                    let function = &functions[*innermost as usize];
                    let is_unknown = function.name.is_none() && function.source.is_none();
                    if is_unknown || function.name.as_deref() == Some(NOT_SAMPLED) {
                        start.unknown.insert(titles[*title as usize].clone());
                    }
                }
                None => *start.functions.entry(NO_STACK.to_owned()).or_default() += samples,
            }
            let of_kernel = stack.frames.iter().map(|frame| &functions[*frame as usize]);
            let mut of_kernel = of_kernel.take_while(|one| is_in_kernel(one)).peekable();
            if of_kernel.peek().is_some() {
                let entry = kernel_entry(of_kernel.map(|one| one.name.as_deref().unwrap_or("")));
                *start.system_calls.entry(format!("kernel: {entry}")).or_default() += samples;
            }
            let mut once = titled.clone();
            once.sort_unstable();
            once.dedup();
            once.into_iter().for_each(|title| with_callees[title as usize] += samples);
        }
        let named = |sums: &[f64]| -> Samples {
            let all = titles.iter().cloned().zip(sums.iter().copied());
            all.filter(|(_, samples)| *samples > 0.0).collect()
        };
        start.functions.extend(named(&own));
        start.with_callees = named(&with_callees);
        let of_layers = layers.add_up(functions, stacks).into_iter();
        start.layers =
            of_layers.map(|(layer, samples)| (layer.to_owned(), samples as f64)).collect();
        start
    }

    /// The CPU time per query in µs that so many samples stand for.
    fn time(&self, samples: f64) -> f64 {
        samples * self.cpu / self.samples
    }
}

pub(super) fn is_in_kernel(function: &Function) -> bool {
    function.module == "[k]"
}

/// All rows, the largest difference first; and by how many deviations of counts one must differ to be certain.
fn rows(
    starts: &[[Start; 2]],
    of: fn(&Start) -> &Samples,
    control: Option<&[ProfileRow]>,
) -> (Vec<ProfileRow>, f64) {
    let control = control.unwrap_or_default();
    let names = names(starts, of);
    let (times, differences): (Vec<[f64; 2]>, Vec<Difference>) =
        names.iter().map(|name| mean(starts, of, name)).unzip();
    let Judged { rows: judged, deviations } = judged(&differences, between_instances(control));
    let floors: HashMap<&str, f64> =
        control.iter().map(|row| (row.name.as_str(), row.difference().abs())).collect();
    let all = names.into_iter().zip(times).zip(judged);
    let row = |((name, [us, baseline_us]), (half_width_us, certain)): ((&str, [f64; 2]), _)| {
        let name = name.to_owned();
        let row = ProfileRow { name, us, baseline_us, half_width_us, certain, moved: false };
        let floor = floors.get(row.name.as_str()).copied().unwrap_or_default();
        let is_known = row.difference().abs() > floor && !is_not_sampled(&row.name);
        ProfileRow { certain: certain && is_known, ..row }
    };
    let mut rows: Vec<ProfileRow> = all.map(row).collect();
    rows.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    (rows, deviations)
}

/// Whether it is the layer, the system call or the function of the time without samples. It is what others leave, and
/// varies as much as all of them.
pub(crate) fn is_not_sampled(name: &str) -> bool {
    let name = name.strip_prefix("kernel: ").or_else(|| name.strip_suffix(" [kernel]"));
    name == Some(NOT_SAMPLED)
}

/// The names under which something was sampled.
pub(crate) fn names(starts: &[[Start; 2]], of: fn(&Start) -> &Samples) -> BTreeSet<&str> {
    starts.iter().flatten().flat_map(|start| of(start).keys()).map(String::as_str).collect()
}

/// A difference in CPU time per query, the mean of some starts.
pub(crate) struct Difference {
    pub us: f64,
    /// Its variance if samples were counts.
    variance: f64,
    /// The sum of squares between starts relative to what counts make, and its degrees of freedom.
    scatter: (f64, f64),
    /// How many times as large the variance is at least.
    inflation: f64,
}

impl Difference {
    /// What it is more than in earlier starts. How much a function varies between runs is estimated of itself, too: days
    /// apart, a machine changes some of them more than others.
    pub fn since(&self, before: &Self) -> Self {
        let scatter = (self.scatter.0 + before.scatter.0, self.scatter.1 + before.scatter.1);
        let own = if scatter.1 >= FREEDOM { scatter.0 / scatter.1 } else { 1.0 };
        let (us, variance) = (self.us - before.us, self.variance + before.variance);
        Self { us, variance, scatter, inflation: own.max(1.0) }
    }
}

/// The mean CPU time per query in µs under a name on both sides, and its difference.
pub(crate) fn mean(
    starts: &[[Start; 2]],
    of: fn(&Start) -> &Samples,
    name: &str,
) -> ([f64; 2], Difference) {
    let count = starts.len() as f64;
    // CPU times per query, and the variance of both if samples were counts.
    let mut sums = (0.0, 0.0, 0.0);
    let mut differences = Vec::new();
    for [own, base] in starts {
        let [(us, of_own), (baseline_us, of_base)] = [own, base].map(|start| {
            let samples = of(start).get(name).copied().unwrap_or_default();
            // A function that is never seen may have been seen once.
            (start.time(samples), samples.max(1.0) * start.time(1.0).powi(2))
        });
        sums = (sums.0 + us, sums.1 + baseline_us, sums.2 + of_own + of_base);
        differences.push(us - baseline_us);
    }
    let us = differences.iter().sum::<f64>() / count;
    let variance = sums.2 / count;
    let samples: f64 = starts.iter().flatten().filter_map(|start| of(start).get(name)).sum();
    let squares: f64 = differences.iter().map(|one| (one - us).powi(2)).sum();
    let is_enough = samples >= ENOUGH * 2.0 * count;
    let scatter = if is_enough { (squares / variance, count - 1.0) } else { (0.0, 0.0) };
    let difference = Difference { us, variance: variance / count, scatter, inflation: 1.0 };
    ([sums.0 / count, sums.1 / count], difference)
}

pub(crate) struct Judged {
    /// Half of the 95% interval of each difference in µs, and whether it is certain among all of them.
    pub rows: Vec<(f64, bool)>,
    /// By how many deviations of counts a difference must differ from 0 to be certain.
    deviations: f64,
}

/// Judges differences whose deviations are at least so many times as large as samples explain.
pub(crate) fn judged(differences: &[Difference], factor: f64) -> Judged {
    let squares: f64 = differences.iter().map(|one| one.scatter.0).sum();
    let freedom: f64 = differences.iter().map(|one| one.scatter.1).sum();
    let inflation = if freedom > 0.0 { (squares / freedom).max(1.0) } else { 1.0 };
    let deviation =
        |one: &Difference| factor * (one.variance * inflation.max(one.inflation)).sqrt();
    let p_values: Vec<f64> =
        differences.iter().map(|one| two_sided(one.us / deviation(one))).collect();
    let level = false_discovery_level(&p_values, FALSE_DISCOVERIES);
    let all = differences.iter().zip(p_values);
    let rows = all.map(|(one, p)| (NORMAL * deviation(one), p <= level)).collect();
    Judged { rows, deviations: factor * inflation.sqrt() * quantile(level) }
}

/// By how much two equal instances differ more than their samples explain. A median, because a few functions may
/// truthfully differ.
fn between_instances(control: &[ProfileRow]) -> f64 {
    // As many samples as are enough, from the width of the interval.
    let largest = NORMAL * (2.0 / ENOUGH).sqrt();
    let has_enough = |row: &&ProfileRow| row.half_width_us < largest * row.us.max(row.baseline_us);
    let square = |row: &ProfileRow| (NORMAL * row.difference() / row.half_width_us).powi(2);
    let squares: Vec<f64> = control.iter().filter(has_enough).map(square).collect();
    match median(&squares) {
        Some(median) if squares.len() >= ENOUGH_FUNCTIONS => {
            (median / MEDIAN_SQUARE).max(1.0).sqrt()
        }
        _ => 1.0,
    }
}

/// The smallest differences that are certain, if a function must differ by so many deviations.
fn least_certain(starts: &[[Start; 2]], deviations: f64) -> LeastCertain {
    let count = starts.len() as f64;
    let mean = |of: fn(&[Start; 2]) -> f64| starts.iter().map(of).sum::<f64>() / count;
    let of_sample = mean(|[own, _]| own.time(1.0));
    // k samples of a new function and one of the baseline in each start differ by k / √(k + starts) deviations.
    let square = deviations.powi(2);
    let samples = (square + (square.powi(2) + 4.0 * square * count).sqrt()) / 2.0;
    let us = LeastCertain::SHARE * mean(|[_, base]| base.cpu);
    let variance = us * mean(|[own, base]| own.time(1.0) + base.time(1.0)) / count;
    LeastCertain { new_us: samples * of_sample / count, change_us: deviations * variance.sqrt() }
}

/// The probability of a value at least as far from 0 in a normal distribution.
fn two_sided(value: f64) -> f64 {
    libm::erfc(value.abs() / SQRT_2)
}

/// The value of which this is the probability.
fn quantile(probability: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if two_sided(middle) > probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {

    use super::*;

    fn start(cpu: f64, of: &[(&str, f64)]) -> Start {
        let functions: Samples = of.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        Start { cpu, samples: functions.values().sum(), functions, ..Start::default() }
    }

    fn functions(starts: &[[Start; 2]], control: Option<&[ProfileRow]>) -> (Vec<ProfileRow>, f64) {
        rows(starts, |start| &start.functions, control)
    }

    #[test]
    fn probabilities_are_those_of_the_normal_distribution() {
        for (value, p) in [(0.0, 1.0), (1.0, 0.317_311), (-1.959_964, 0.05), (4.0, 6.334e-5)] {
            assert!((two_sided(value) - p).abs() < 1e-6, "{value}: {}", two_sided(value));
            assert!((quantile(two_sided(value)) - value.abs()).abs() < 1e-6, "{value}");
        }
    }

    /// Four starts of a candidate whose `memcmp` is slower.
    fn slower_memcmp() -> Vec<[Start; 2]> {
        let pair = |number: i32| {
            let noise = f64::from(number % 2) * 20.0;
            let same = [("parse", 1_000.0 + noise), ("read", 2_000.0 - noise)];
            let slower = [&same[..], &[("memcmp", 1_500.0)]].concat();
            let base = [&same[..], &[("memcmp", 1_000.0)]].concat();
            [start(45.0, &slower), start(40.0, &base)]
        };
        (0..4).map(pair).collect()
    }

    #[test]
    fn rows_add_up_to_the_difference_and_the_certain_one_is_found() {
        let (rows, _) = functions(&slower_memcmp(), None);
        let sum: f64 = rows.iter().map(ProfileRow::difference).sum();
        assert!((sum - 5.0).abs() < 1e-9, "{rows:?}");
        assert_eq!((rows[0].name.as_str(), rows[0].certain), ("memcmp", true));
        assert!(rows[1..].iter().all(|row| !row.certain), "{rows:?}");
        assert!(rows[0].half_width_us < 0.5, "{rows:?}");
    }

    #[test]
    fn time_without_samples_is_never_certain() {
        let side = |memcmp: f64, rest: f64| {
            let (other, of) = (1_000.0, ["memcmp", "read", "not sampled [kernel]"]);
            let samples = of.into_iter().zip([memcmp, other, rest]).collect::<Vec<_>>();
            start((memcmp + other + rest) / 100.0, &samples)
        };
        let starts: Vec<[Start; 2]> =
            (0..4).map(|_| [side(1_000.0, 3_000.0), side(500.0, 1_000.0)]).collect();
        let certain: Vec<String> = functions(&starts, None)
            .0
            .into_iter()
            .filter(|row| row.certain)
            .map(|row| row.name)
            .collect();
        assert_eq!(certain, ["memcmp"]);
        let layer = "kernel: not sampled";
        assert!(is_not_sampled(layer) && !is_not_sampled("kernel: other"));
    }

    #[test]
    fn time_without_samples_is_no_sample() {
        let rest = Function { module: "[k]".to_owned(), ..function(NOT_SAMPLED) };
        let functions = vec![function("parse"), rest];
        let stack = |frames: &[u32], samples| Stack { frames: frames.to_vec(), samples };
        let stacks = vec![stack(&[0], 60), stack(&[1], 30), stack(&[], 10)];
        let profile = Profile { functions, stacks, samples: 100, ..Profile::default() };
        assert_eq!((taken(&profile), samples_of(&profile)), (70, 100));
    }

    #[test]
    fn certain_difference_is_larger_than_the_controls() {
        let starts = slower_memcmp();
        let of_control = |difference: f64| ProfileRow {
            name: "memcmp".to_owned(),
            us: 10.0 + difference,
            baseline_us: 10.0,
            half_width_us: 0.4,
            certain: false,
            moved: false,
        };
        let is_certain =
            |control: f64| functions(&starts, Some(&[of_control(control)])).0[0].certain;
        let size = functions(&starts, None).0[0].difference();
        assert!(is_certain(0.9 * size) && is_certain(-0.9 * size));
        assert!(!is_certain(1.1 * size) && !is_certain(-1.1 * size));
        // All functions of the control differ by twice what samples explain.
        let wide = vec![of_control(0.4 / NORMAL * 2.0 * MEDIAN_SQUARE.sqrt()); ENOUGH_FUNCTIONS];
        let widths =
            [None, Some(&wide[..])].map(|control| functions(&starts, control).0[0].half_width_us);
        assert!((widths[1] / widths[0] - 2.0).abs() < 1e-6, "{widths:?}");
    }

    /// Samples of 200 functions, of which one takes 5% and `more` of the time.
    fn drawn(seed: &mut u64, more: f64) -> Start {
        let mut weights = vec![0.95 / 199.0; 199];
        weights.push(0.05 + more);
        let ends: Vec<f64> = weights
            .iter()
            .scan(0.0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        let mut counts = vec![0.0; 200];
        for _ in 0..2_000 {
            *seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (*seed >> 11) as f64 / (1_u64 << 53) as f64 * (1.0 + more);
            counts[ends.partition_point(|end| *end <= at).min(199)] += 1.0;
        }
        let names: Vec<String> = (0..200).map(|number| format!("f{number}")).collect();
        let of: Vec<(&str, f64)> = names.iter().map(String::as_str).zip(counts).collect();
        start(40.0 * (1.0 + more), &of)
    }

    #[test]
    fn planted_function_is_named_first_and_equal_servers_have_none() {
        let mut seed = 20_260_301;
        let (mut found, mut false_ones) = (0, 0);
        for _ in 0..40 {
            let mut starts = |more: f64| -> Vec<[Start; 2]> {
                (0..3).map(|_| [drawn(&mut seed, more), drawn(&mut seed, 0.0)]).collect()
            };
            let (planted, equal) = (starts(0.03), starts(0.0));
            let (rows, deviations) = functions(&planted, None);
            found += u32::from(rows[0].name == "f199" && rows[0].certain);
            let least = least_certain(&planted, deviations);
            assert!((0.3..1.2).contains(&least.change_us), "of 1.2 µs: {least:?}");
            assert!(least.new_us < least.change_us, "{least:?}");
            false_ones += u32::from(functions(&equal, None).0.iter().any(|row| row.certain));
        }
        assert!(found >= 37, "found in {found} of 40 runs");
        assert!(false_ones <= 6, "a false discovery in {false_ones} of 40 runs");
    }

    fn function(name: &str) -> Function {
        let name = Some(name.to_owned());
        Function { module: "mariadbd".to_owned(), name, source: None, start: 0 }
    }

    #[test]
    fn recursive_function_counts_once_per_stack() {
        let functions = ["main", "sort", "swap"].map(function).to_vec();
        let stack = |frames: &[u32], samples| Stack { frames: frames.to_vec(), samples };
        let stacks = vec![
            stack(&[2, 1, 1, 1, 0], 50),
            stack(&[1, 1, 0], 30),
            stack(&[0], 15),
            stack(&[], 5),
        ];
        let profile = Profile { functions, stacks, samples: 100, ..Profile::default() };
        assert!(is_consistent(&profile));
        let sampled = || Sampled { cpu: 10.0, profile: &profile };
        let layers = Layers::of("mariadb");
        let found = difference(&[[sampled(), sampled()]], [&layers; 2], &Titles::of([]), None);
        let of = |rows: &[ProfileRow], name: &str| {
            rows.iter().find(|row| row.name == name).map(|row| (row.us * 10.0).round())
        };
        assert_eq!(of(&found.functions, "sort"), Some(30.0));
        assert_eq!(of(&found.with_callees, "sort"), Some(80.0));
        assert_eq!(of(&found.with_callees, "main"), Some(95.0));
        for rows in [&found.functions, &found.layers] {
            let sum: f64 = rows.iter().map(|row| row.us).sum();
            assert!((sum - 10.0).abs() < 1e-9, "{rows:?}");
        }
        assert!((found.stacks[0].total_us() - 10.0).abs() < 1e-9);
        assert_eq!(found.samples, [100, 100]);
    }

    /// The functions with and without what they call that are marked as moved, of a candidate and a baseline with stacks
    /// of these functions, the outermost first, and their samples.
    fn moved(own: &[(&str, u64)], base: &[(&str, u64)]) -> [Vec<String>; 2] {
        let [own, base] = [own, base].map(|stacks| {
            let mut names: Vec<&str> = stacks.iter().flat_map(|one| one.0.split(' ')).collect();
            names.sort_unstable();
            names.dedup();
            let number = |name: &str| names.partition_point(|one| *one < name) as u32;
            let stack = |(text, samples): &(&str, u64)| Stack {
                frames: text.rsplit(' ').map(number).collect(),
                samples: *samples,
            };
            let functions = names.iter().map(|name| function(name)).collect();
            Profile { functions, stacks: stacks.iter().map(stack).collect(), ..Profile::default() }
        });
        // As much time per sample on both sides.
        let sampled = |profile| Sampled { cpu: samples_of(profile) as f64 / 1e3, profile };
        let layers = Layers::of("mysql");
        let starts = [[sampled(&own), sampled(&base)]];
        let found = difference(&starts, [&layers; 2], &Titles::of([]), None);
        [found.with_callees, found.functions].map(|rows| {
            let mut moved: Vec<String> =
                rows.into_iter().filter(|row| row.moved).map(|row| row.name).collect();
            moved.sort_unstable();
            moved
        })
    }

    const NONE: [Vec<String>; 2] = [Vec::new(), Vec::new()];

    #[test]
    fn function_that_differs_more_than_its_caller_is_moved() {
        // A tail call leaves `inner` out in the baseline.
        let base =
            [("main parse", 4_000), ("main execute inner read", 700), ("main execute read", 900)];
        let own = [("main parse", 4_000), ("main execute inner read", 1_600)];
        assert_eq!(moved(&own, &base)[0], ["inner"]);
        // What is called by another name, and below it; a single sample on the other side does not make it known.
        let own = [("main parse", 4_000), ("main execute next get", 1_600), ("main old get", 1)];
        let base = [("main parse", 4_000), ("main execute old deep get", 1_600)];
        assert_eq!(moved(&own, &base)[0], ["deep", "next", "old"]);
        // Rows are read a second time.
        let base = [("main parse", 4_000), ("main execute read", 1_600)];
        let own = [base[0], base[1], ("main execute sorted again get", 3_000)];
        assert_eq!(moved(&own, &base), NONE);
        // Too few samples of the caller to tell.
        let base = [("main parse", 400), ("main execute", 9_000)];
        let own = [("main parse", 600), ("main execute", 8_850)];
        assert_eq!(moved(&own, &base), NONE);
    }

    #[test]
    fn time_that_another_function_takes_below_the_same_caller_is_moved() {
        // All rows are read with the first one, a little faster; `fetch` and what it calls are still called by both.
        let base = [
            ("main parse", 4_000),
            ("main scan next fetch search", 1_330),
            ("main scan first search", 100),
        ];
        let own = [base[0], ("main scan next fetch search", 180), ("main scan first search", 730)];
        assert_eq!(moved(&own, &base)[0], ["fetch", "first", "next"]);
        // `ordinary` is inlined into `offsets`, which its caller inlined before.
        let base = [("main parse", 4_000), ("main get ordinary", 1_040), ("main get offsets", 64)];
        let own = [base[0], ("main get offsets", 1_200)];
        let both = ["offsets", "ordinary"];
        assert_eq!(moved(&own, &base), [both, both]);
        // What `get` calls is inlined into it.
        let own = [base[0], ("main get", 1_104)];
        assert_eq!(moved(&own, &base)[1], ["get", "offsets", "ordinary"]);
        // Another implementation: new and gone.
        let own = [base[0], ("main get", 10), ("main get other compute", 1_500)];
        let base = [base[0], ("main get", 10), ("main get ordinary", 700)];
        assert_eq!(moved(&own, &base), NONE);
    }

    #[test]
    fn renamed_function_is_moved_on_both_sides_or_on_neither() {
        let [parse, read] = [("main parse", 4_000), ("main execute read", 1_000)];
        let base = [parse, ("main execute old", 1_000), read];
        let own = [parse, ("main execute next", 1_000), read];
        assert_eq!(moved(&own, &base)[0], ["next", "old"]);
        // A slower function below the same caller offsets `old`, but not `next`.
        let own = [parse, own[1], ("main execute read", 3_000)];
        assert_eq!(moved(&own, &base), NONE);
        assert_eq!(moved(&base, &own), NONE);
    }

    #[test]
    fn slower_function_is_not_moved() {
        let base = [
            ("main parse", 4_000),
            ("main execute read compare", 1_000),
            ("main execute read", 900),
            ("main execute sort compare", 500),
        ];
        let own = [base[0], (base[1].0, 2_000), base[2], (base[3].0, 1_000)];
        assert_eq!(moved(&own, &base), NONE);
        assert_eq!(moved(&base, &own), NONE);
        // Nor if another function needs less time: neither is in the other.
        let own = [("main parse", 2_500), own[1], ("main execute read", 500), own[3]];
        assert_eq!(moved(&own, &base), NONE);
        assert_eq!(moved(&base, &own), NONE);
        // Nor if it is new.
        let own = [base[0], base[1], base[2], base[3], ("main execute check", 900)];
        assert_eq!(moved(&own, &base), NONE);
        assert_eq!(moved(&base, &own), NONE);
    }

    #[test]
    fn damaged_profiles_are_recognized() {
        let stack = |frames: &[u32], samples| Stack { frames: frames.to_vec(), samples };
        let is_whole = |stacks: &[Stack], cut| {
            let functions = vec![function("main")];
            is_consistent(&Profile {
                functions,
                stacks: stacks.to_vec(),
                cut,
                ..Profile::default()
            })
        };
        assert!(is_whole(&[stack(&[0], 1)], 0));
        assert!(!is_whole(&[stack(&[1], 1)], 0) && !is_whole(&[], 0));
        assert!(!is_whole(&[stack(&[0], u64::MAX), stack(&[], 1)], 0));
        assert!(!is_whole(&[stack(&[0], 1)], u64::MAX));
    }
}
