//! Flame graphs: sampled stacks as boxes, callers above what they call, as wide as their CPU time.
//!
//! The crate `inferno` makes such charts as documents of their own, with a script, event handlers and styles inside, all
//! of which the page's policy forbids. Here every box is an `svg` with a position in percent, which clips its text: the
//! chart fits any width, is readable without scripts, and the page's script only moves boxes to enlarge a part.

use std::collections::HashMap;

use dbdyno_text::{cut, plain};
use maud::{Markup, html};

use super::percent;
use crate::figures::{signed_us, us};
use crate::model::{ProfileDifference, ProfileRow, Stacks};
use crate::stacks::{Call, RARE, calls};

/// Narrower boxes are left out: a box is about 180 bytes of a page.
const LEAST_SHARE: f64 = 0.003;

/// Boxes of a chart at most, the widest: 45 KB.
const MOST: usize = 250;

/// Boxes from this width have text without the script, in percent.
const LEAST_TEXT: f64 = 3.0;

/// Characters that fit into a percent of a wide page.
const CHARACTERS: f64 = 2.1;

/// The height of a row, and of the boxes in it, in pixels.
const ROW: usize = 18;
const BOX: usize = 17;

/// A flame graph of the baseline, or of a candidate relative to it.
#[derive(Clone, Debug)]
pub(crate) struct Flame {
    /// Whose CPU time it is.
    of: String,
    stacks: Stacks,
    relative: Option<Relative>,
}

#[derive(Clone, Debug)]
struct Relative {
    baseline: String,
    stacks: Stacks,
    /// Functions with what they call.
    rows: Vec<ProfileRow>,
    /// The larger of both CPU times per query, in µs.
    whole_us: f64,
}

impl Flame {
    pub(crate) fn of_baseline(name: &str, profile: &ProfileDifference) -> Self {
        let [_, stacks] = &profile.stacks;
        Self { of: name.to_owned(), stacks: stacks.clone(), relative: None }
    }

    /// Widths are the candidate's times, and colours its differences from the baseline.
    pub(crate) fn of_candidate(name: &str, baseline: &str, profile: &ProfileDifference) -> Self {
        let [stacks, of_baseline] = &profile.stacks;
        let relative = Relative {
            baseline: baseline.to_owned(),
            stacks: of_baseline.clone(),
            rows: profile.with_callees.clone(),
            whole_us: stacks.total_us().max(of_baseline.total_us()),
        };
        Self { of: name.to_owned(), stacks: stacks.clone(), relative: Some(relative) }
    }

    pub(crate) fn draw(&self) -> Markup {
        let caption = match &self.relative {
            None => format!("{}: CPU time per query", self.of),
            Some(one) => format!(
                "{}: CPU time per query; red needs more than {}, blue less, grey is not certain",
                self.of, one.baseline
            ),
        };
        let boxes = self.boxes();
        let rows = boxes.iter().map(|one| one.row + 1).max().unwrap_or(0);
        html! {
            figure.flame {
                figcaption { (caption) }
                div.js.tools {
                    input type="search" aria-label="Search functions" placeholder="Search functions";
                    button type="button" { "Reset" }
                    output {}
                }
                div.scroll tabindex="0" role="region" aria-label=(caption) {
                    svg.graph width="100%" height=(rows * ROW) role="img" aria-label=(caption) {
                        @for one in &boxes { (one.draw()) }
                    }
                }
            }
        }
    }

    /// Callers before what they call, from left to right.
    fn boxes(&self) -> Vec<FlameBox> {
        let Stacks { functions, stacks } = &self.stacks;
        let calls = calls(stacks);
        let total = self.stacks.total_us();
        let mut sizes: Vec<f64> = calls.iter().map(|call| call.us).collect();
        sizes.sort_unstable_by(|a, b| b.total_cmp(a));
        // Of equal ones, none: a caller is shown with what it calls.
        let too_small = sizes.get(MOST).copied().unwrap_or(0.0);
        let of_baseline = self.relative.as_ref().map(|one| one.times(&calls, functions));
        let whole = FlameBox {
            x: 0.0,
            width: 100.0,
            row: 0,
            class: "all",
            name: format!("{}: {} µs per query", self.of, us(total)),
            about: String::new(),
        };
        let mut boxes = vec![whole];
        // Where the next call of each call, and of none, begins.
        let (mut next, mut next_outermost) = (Vec::with_capacity(calls.len()), 0.0);
        for (number, call) in calls.iter().enumerate() {
            let begin = match call.caller {
                Some(caller) => &mut next[caller],
                None => &mut next_outermost,
            };
            let from: f64 = *begin;
            *begin += call.us;
            next.push(from);
            if call.us < LEAST_SHARE * total || call.us <= too_small {
                continue;
            }
            let name = &functions[call.function as usize];
            let (class, about) = match (&self.relative, &of_baseline) {
                (Some(relative), Some(times)) => relative.describe(call, name, times[number]),
                _ => {
                    let share = 100.0 * call.us / total;
                    (plain_class(name), format!("{} µs, {share:.1}%", us(call.us)))
                }
            };
            boxes.push(FlameBox {
                x: 100.0 * from / total,
                width: 100.0 * call.us / total,
                row: call.depth + 1,
                class,
                name: plain(name),
                about,
            });
        }
        boxes
    }
}

impl Relative {
    /// The baseline's CPU time in the same calls; 0 where it has none.
    fn times(&self, of: &[Call], functions: &[String]) -> Vec<f64> {
        let own = calls(&self.stacks.stacks);
        let name = |call: &Call| self.stacks.functions[call.function as usize].as_str();
        let numbered = own.iter().enumerate();
        let known: HashMap<(Option<usize>, &str), usize> =
            numbered.map(|(number, call)| ((call.caller, name(call)), number)).collect();
        let mut same: Vec<Option<usize>> = Vec::with_capacity(of.len());
        for call in of {
            let name = functions[call.function as usize].as_str();
            let caller = call.caller.map(|caller| same[caller]);
            same.push(match caller {
                // The baseline does not have the caller.
                Some(None) => None,
                caller => known.get(&(caller.flatten(), name)).copied(),
            });
        }
        same.iter().map(|number| number.map_or(0.0, |number| own[number].us)).collect()
    }

    /// The class of a box and its tooltip.
    fn describe(&self, call: &Call, name: &str, baseline_us: f64) -> (&'static str, String) {
        const MORE: [&str; 4] = ["more1", "more2", "more3", "more4"];
        const LESS: [&str; 4] = ["less1", "less2", "less3", "less4"];
        let difference = call.us - baseline_us;
        let row = self.rows.iter().find(|row| row.name == name && row.certain);
        // A function may need more time in one place and less in another.
        let is_certain = row.is_some_and(|row| row.difference() * difference > 0.0);
        let strength = match difference.abs() / self.whole_us {
            ..0.01 => 0,
            ..0.03 => 1,
            ..0.1 => 2,
            _ => 3,
        };
        let class = match is_certain {
            false => "unsure",
            true if difference > 0.0 => MORE[strength],
            true => LESS[strength],
        };
        let unsure = if is_certain { "" } else { ", not certain" };
        let times = format!("{} µs, {} {} µs", us(call.us), self.baseline, us(baseline_us));
        (class, format!("{times}: {}{unsure}", signed_us(difference)))
    }
}

/// One of three shades, so that neighbours can be told apart.
fn plain_class(name: &str) -> &'static str {
    let sum = name.bytes().fold(0_usize, |sum, byte| sum + usize::from(byte));
    if name == RARE { "unsure" } else { ["shade1", "shade2", "shade3"][sum % 3] }
}

struct FlameBox {
    /// In percent, as the width.
    x: f64,
    width: f64,
    row: usize,
    class: &'static str,
    name: String,
    about: String,
}

impl FlameBox {
    fn draw(&self) -> Markup {
        let Self { x, width, row, class, name, about } = self;
        let text = cut(name, (width * CHARACTERS) as usize);
        html! {
            svg.frame.(class) x=(percent(*x)) width=(percent(*width)) y=(row * ROW) height=(BOX) {
                // The script takes the name from the first line.
                title { (name) @if !about.is_empty() { "\n" (about) } }
                rect width="100%" height="100%" {}
                @if *width >= LEAST_TEXT { text x="3" y="12" { (text) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn profile() -> (String, ProfileDifference) {
        let report = sample::profiled(&["scan_range=100"]);
        let profile = report.microbenchmarks[0].rows[0].profile.clone();
        (report.baseline, profile.unwrap())
    }

    #[test]
    fn boxes_lie_within_their_callers() {
        let (baseline, profile) = profile();
        for flame in [
            Flame::of_baseline(&baseline, &profile),
            Flame::of_candidate("myrocks", &baseline, &profile),
        ] {
            let boxes = flame.boxes();
            assert!((20..=MOST + 1).contains(&boxes.len()), "{}", boxes.len());
            let end = |one: &FlameBox| one.x + one.width;
            for (number, one) in boxes.iter().enumerate().skip(1) {
                let mut above = boxes[..number].iter().rev();
                let caller = above.find(|other| other.row + 1 == one.row).unwrap();
                assert!(caller.x <= one.x + 1e-9, "{} in {}", one.name, caller.name);
                assert!(end(one) <= end(caller) + 1e-9, "{} in {}", one.name, caller.name);
                let before = boxes[..number].iter().rev().find(|other| other.row == one.row);
                assert!(before.is_none_or(|before| end(before) <= one.x + 1e-9), "{}", one.name);
            }
        }
    }

    #[test]
    fn colours_are_those_of_certain_differences() {
        let (baseline, profile) = profile();
        let boxes = Flame::of_candidate("myrocks", &baseline, &profile).boxes();
        let class = |name: &str| boxes.iter().find(|one| one.name == name).map(|one| one.class);
        assert_eq!(class("rocksdb::DBIter::Next"), Some("more4"));
        assert_eq!(class("MYSQLparse"), Some("unsure"));
        let page = Flame::of_candidate("myrocks", &baseline, &profile).draw().into_string();
        assert!(page.len() < 200 * MOST, "{} bytes", page.len());
        assert!(!page.contains("style="), "the page's policy forbids it");
    }
}
