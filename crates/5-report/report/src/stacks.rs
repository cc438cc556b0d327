//! Sampled stacks: as a tree of calls, without rare ones, and as files that other programs show.

use std::collections::{BTreeMap, BTreeSet};

use dbdyno_text::{cut, plain};
use serde_json::{Value, json};

use crate::export::ExportError;
use crate::metric::with_clients;
use crate::model::{CpuStack, MicrobenchmarkRows, Report, Role, Stacks};

/// Calls with less than this share of the CPU time belong to their callers.
const LEAST_SHARE: f64 = 0.001;

/// Calls that are deeper belong to their callers.
const DEEPEST: usize = 100;

/// The name of stacks that begin with a rare function.
pub(crate) const RARE: &str = "rare stacks";

/// A function as it is called from one place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Its index in [`Stacks::functions`].
    pub(crate) function: u32,
    /// The index of the call that it is in.
    pub(crate) caller: Option<usize>,
    /// The number of its callers.
    pub(crate) depth: usize,
    samples: u64,
    /// CPU time per query in µs, with what it calls.
    pub(crate) us: f64,
}

/// The calls of stacks in ascending order, each before those that it makes.
pub(crate) fn calls(stacks: &[CpuStack]) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    // The calls of the stack before.
    let mut path: Vec<usize> = Vec::new();
    for stack in stacks {
        let both = path.iter().zip(&stack.frames);
        let same = both.take_while(|(call, frame)| calls[**call].function == **frame).count();
        path.truncate(same);
        for function in &stack.frames[same..] {
            let (caller, depth) = (path.last().copied(), path.len());
            path.push(calls.len());
            calls.push(Call { function: *function, caller, depth, samples: 0, us: 0.0 });
        }
        for call in &path {
            calls[*call].samples += stack.samples;
            calls[*call].us += stack.us;
        }
    }
    calls
}

impl Stacks {
    /// Stacks of functions in ascending order, with their samples and CPU time, without rare calls.
    pub(crate) fn without_rare(functions: &[String], sums: BTreeMap<Vec<u32>, (u64, f64)>) -> Self {
        let all: Vec<CpuStack> = sums
            .into_iter()
            .map(|(frames, (samples, us))| CpuStack { frames, samples, us })
            .collect();
        let calls = calls(&all);
        // What is in no call, and what is in each call, but not in a call that it makes.
        let sum = |(samples, us): (u64, f64), one: &CpuStack| (samples + one.samples, us + one.us);
        let mut rest = all.iter().fold((0, 0.0), sum);
        let least = LEAST_SHARE * rest.1;
        // Callers have at least as much time and less depth, so they are kept with their calls.
        let is_kept = |call: &Call| call.us >= least && call.depth < DEEPEST;
        let mut own: Vec<(u64, f64)> = calls.iter().map(|call| (call.samples, call.us)).collect();
        let mut used = BTreeSet::new();
        for call in calls.iter().filter(|call| is_kept(call)) {
            let caller = match call.caller {
                Some(caller) => &mut own[caller],
                None => &mut rest,
            };
            *caller = (caller.0 - call.samples, caller.1 - call.us);
            used.insert(call.function);
        }
        let used: Vec<u32> = used.into_iter().collect();
        let frames = |mut at: Option<usize>| {
            let mut frames = Vec::new();
            while let Some(call) = at {
                let number = used.partition_point(|one| *one < calls[call].function);
                frames.push(number as u32);
                at = calls[call].caller;
            }
            frames.reverse();
            frames
        };
        let kept = (0..calls.len()).filter(|at| is_kept(&calls[*at]));
        let kept = kept.map(|at| (Some(at), own[at]));
        let stacks =
            [(None, rest)].into_iter().chain(kept).filter(|(_, (samples, _))| *samples > 0);
        let stack = |(at, (samples, us)): (Option<usize>, (u64, f64))| CpuStack {
            frames: frames(at),
            samples,
            us: us.max(0.0),
        };
        Self {
            stacks: stacks.map(stack).collect(),
            functions: used.iter().map(|one| functions[*one as usize].clone()).collect(),
        }
    }

    pub(crate) fn total_us(&self) -> f64 {
        self.stacks.iter().map(|stack| stack.us).sum()
    }

    /// A line per stack: its functions, the outermost first, separated by `;`, and its samples.
    fn folded(&self) -> String {
        let line = |stack: &CpuStack| {
            let names = self.names(stack).into_iter().map(|name| plain(name).replace(';', ":"));
            format!("{} {}\n", names.collect::<Vec<_>>().join(";"), stack.samples)
        };
        self.stacks.iter().map(line).collect()
    }

    /// The functions of a stack, the outermost first.
    fn names(&self, stack: &CpuStack) -> Vec<&str> {
        match &stack.frames[..] {
            [] => vec![RARE],
            frames => frames.iter().map(|one| self.functions[*one as usize].as_str()).collect(),
        }
    }
}

/// The stacks of a candidate on a microbenchmark.
struct Profiled<'r> {
    microbenchmark: &'r MicrobenchmarkRows,
    candidate: &'r str,
    stacks: &'r Stacks,
}

/// Those of the baseline come first. The control has none.
fn profiled(report: &Report) -> Vec<Profiled<'_>> {
    let mut all = Vec::new();
    for microbenchmark in &report.microbenchmarks {
        let mut add = |candidate, stacks| {
            all.push(Profiled { microbenchmark, candidate, stacks });
        };
        let rows = microbenchmark.rows.iter().filter(|row| row.role == Role::Candidate);
        let rows = rows.filter_map(|row| Some((row, row.profile.as_ref()?)));
        for (number, (row, profile)) in rows.enumerate() {
            if number == 0 {
                add(report.baseline.as_str(), &profile.stacks[1]);
            }
            add(row.candidate.as_str(), &profile.stacks[0]);
        }
    }
    all
}

/// The names and texts of files with folded stacks.
pub(crate) fn folded_files(report: &Report) -> Vec<(String, String)> {
    let mut names = BTreeSet::new();
    let file = |one: &Profiled<'_>| {
        let MicrobenchmarkRows { name, clients, .. } = one.microbenchmark;
        let clients = match report.is_sweep() {
            true => format!(".{clients}-clients"),
            false => String::new(),
        };
        let name = format!("{}{clients}.{}", for_file(name), for_file(one.candidate));
        // Different names may become equal.
        let mut numbers = 1..;
        let mut unique = name.clone();
        while !names.insert(unique.clone()) {
            unique = format!("{name}.{}", numbers.next().unwrap_or(0) + 1);
        }
        (format!("{unique}.folded"), one.stacks.folded())
    };
    profiled(report).iter().map(file).collect()
}

/// A name that may be part of the name of a file.
fn for_file(name: &str) -> String {
    let is_harmless = |c: char| c.is_ascii_alphanumeric() || "-_=+.".contains(c);
    let name: String = name.chars().map(|c| if is_harmless(c) { c } else { '_' }).collect();
    let name = cut(&name, 100).replace('…', "_");
    if name.starts_with('.') { format!("_{name}") } else { name }
}

/// All stacks in the format of speedscope (<https://www.speedscope.app/file-format-schema.json>), which the Firefox
/// profiler also opens: a profile per microbenchmark and candidate, weighted by nanoseconds per query. `None` without
/// any.
pub(crate) fn speedscope(report: &Report) -> Result<Option<String>, ExportError> {
    let all = profiled(report);
    if all.is_empty() {
        return Ok(None);
    }
    let names = all.iter().flat_map(|one| &one.stacks.functions).map(String::as_str);
    let names: Vec<&str> = names.chain([RARE]).collect::<BTreeSet<_>>().into_iter().collect();
    let number = |name: &str| names.partition_point(|one| *one < name);
    let profile = |one: &Profiled<'_>| -> Value {
        let stacks = &one.stacks.stacks;
        let sample = |stack: &CpuStack| -> Vec<usize> {
            one.stacks.names(stack).into_iter().map(number).collect()
        };
        let MicrobenchmarkRows { name, clients, .. } = one.microbenchmark;
        let name = with_clients(name, *clients, report.is_sweep());
        let weights: Vec<f64> = stacks.iter().map(|stack| 1_000.0 * stack.us).collect();
        json!({
            "type": "sampled",
            "name": format!("{name}: {}", one.candidate),
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": weights.iter().sum::<f64>(),
            "samples": stacks.iter().map(sample).collect::<Vec<_>>(),
            "weights": weights,
        })
    };
    let frames: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": format!("dbdyno {}", report.version),
        "name": report.name,
        "activeProfileIndex": 0,
        "shared": { "frames": frames },
        "profiles": all.iter().map(profile).collect::<Vec<_>>(),
    });
    let text = serde_json::to_string(&file).map_err(|source| ExportError::Encode {
        file: "profile.speedscope.json",
        source: source.into(),
    })?;
    Ok(Some(format!("{text}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn functions(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn rare_calls_belong_to_their_callers() {
        let sums = [
            (vec![0], (10, 1.0)),
            (vec![0, 1], (9_000, 900.0)),
            (vec![0, 1, 2], (3, 0.3)),
            (vec![0, 3], (980, 98.0)),
            (vec![2, 0], (7, 0.7)),
        ];
        let names = functions(&["main", "parse", "rare", "read"]);
        let stacks = Stacks::without_rare(&names, sums.into());
        assert_eq!(stacks.functions, functions(&["main", "parse", "read"]));
        let all: Vec<(Vec<u32>, u64)> =
            stacks.stacks.iter().map(|one| (one.frames.clone(), one.samples)).collect();
        let expected = [(vec![], 7), (vec![0], 10), (vec![0, 1], 9_003), (vec![0, 2], 980)];
        assert_eq!(all, expected);
        assert!((stacks.total_us() - 1_000.0).abs() < 1e-9, "{}", stacks.total_us());
        assert_eq!(stacks.folded(), "rare stacks 7\nmain 10\nmain;parse 9003\nmain;read 980\n");
        let of = |name: u32| calls(&stacks.stacks).iter().find(|one| one.function == name).copied();
        assert_eq!(of(0).map(|call| (call.samples, call.depth)), Some((9_993, 0)));
        assert_eq!(of(2).map(|call| (call.samples, call.caller)), Some((980, Some(0))));
    }

    #[test]
    fn deep_stacks_are_cut() {
        let sums = BTreeMap::from([(vec![0; 50_000], (5, 1.0))]);
        let stacks = Stacks::without_rare(&functions(&["recursive"]), sums);
        assert_eq!(stacks.stacks[0].frames.len(), DEEPEST);
        assert_eq!((stacks.stacks.len(), stacks.stacks[0].samples), (1, 5));
    }

    #[test]
    fn folded_lines_and_file_names_are_safe() {
        let sums = BTreeMap::from([(vec![0], (5, 1.0))]);
        let stacks = Stacks::without_rare(&functions(&["a;b\nc d"]), sums);
        assert_eq!(stacks.folded(), "a:b c d 5\n");
        assert_eq!(for_file("../a b"), "_.._a_b");
        assert_eq!(for_file("point-query_range=100"), "point-query_range=100");
        let mut report = sample::profiled(&["scan_range=100"]);
        report.microbenchmarks.push(report.microbenchmarks[0].clone());
        let names: BTreeSet<String> =
            folded_files(&report).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 4, "{names:?}");
        assert!(names.contains("scan_range=100.myrocks.folded"), "{names:?}");
    }

    /// The rules of <https://github.com/jlfwong/speedscope/blob/main/src/lib/file-format-spec.ts>.
    #[test]
    fn speedscope_file_follows_the_rules_of_its_format() {
        let report = sample::profiled(&["scan_range=100", "insert_range=100"]);
        let file: Value = serde_json::from_str(&speedscope(&report).unwrap().unwrap()).unwrap();
        assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
        let frames = file["shared"]["frames"].as_array().unwrap();
        assert!(frames.iter().all(|frame| frame["name"].is_string()));
        let profiles = file["profiles"].as_array().unwrap();
        assert_eq!(profiles.len(), 2 * 2, "the baseline and the candidate of both");
        assert!(file["activeProfileIndex"].as_u64().unwrap() < profiles.len() as u64);
        for (profile, one) in profiles.iter().zip(profiled(&report)) {
            assert_eq!(
                (&profile["type"], &profile["unit"]),
                (&"sampled".into(), &"nanoseconds".into())
            );
            assert!(profile["name"].as_str().unwrap().ends_with(one.candidate));
            let samples = profile["samples"].as_array().unwrap();
            let weights = profile["weights"].as_array().unwrap();
            assert_eq!(samples.len(), weights.len());
            assert!(!samples.is_empty());
            for stack in samples {
                let stack = stack.as_array().unwrap();
                assert!(!stack.is_empty());
                assert!(stack.iter().all(|at| at.as_u64().unwrap() < frames.len() as u64));
            }
            let sum: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
            let (start, end) = (&profile["startValue"], &profile["endValue"]);
            assert!((end.as_f64().unwrap() - start.as_f64().unwrap() - sum).abs() < 1e-6 * sum);
            // The whole CPU time per query of the candidate.
            assert!((sum / 1_000.0 / one.stacks.total_us() - 1.0).abs() < 1e-9);
        }
        assert!(speedscope(&sample::servers_of(&["scan_range=100"])).unwrap().is_none());
    }
}
