//! Settings in force: what a candidate's servers do with the values that the experiment sets, checked before anything
//! is measured.
//!
//! A value that a server ignored ends the run. A setting that has the baseline's value anyway, and a cache whose size
//! cannot matter, are warnings beside the results.

use dbdyno_engines::in_force::Effect;
use dbdyno_results::{AdjustedSetting, CandidateRecord, Role, StateSnapshotRecord, Warning};
use dbdyno_spec::experiment::{Candidate, PrivateServer, System};
use dbdyno_units::{Bytes, grouped};
use dbdyno_worker::WorkerError;

use crate::candidates::ResolvedCandidate;
use crate::error::RunError;
use crate::instance::context::RunContext;
use crate::instance::in_force::{Settings, refuse_ignored};
use crate::instance::{Instance, data};
use crate::session::Session;

/// The settings that a candidate and the baseline set differently, with the same effect; and whether nothing else
/// distinguishes them.
struct SameEffect<'a> {
    candidate: Settings<'a>,
    names: Vec<String>,
    is_all: bool,
}

impl<'a> SameEffect<'a> {
    fn of(candidate: Settings<'a>, baseline: Settings<'a>) -> Option<Self> {
        if candidate.server.system != baseline.server.system {
            return None;
        }
        let mut all: Vec<&str> = candidate.plan.own_settings().map(|(name, _)| name).collect();
        all.extend(baseline.plan.own_settings().map(|(name, _)| name));
        all.sort_unstable();
        all.dedup();
        all.retain(|name| candidate.own(name) != baseline.own(name));
        let is_other_program =
            candidate.plan.installation().sha256 != baseline.plan.installation().sha256;
        let is_same = |name: &&&str| {
            // A server's own default may be another one in another release: then it was set to be equal.
            let is_default =
                [candidate, baseline].iter().any(|one| one.plan.setting(name).is_none());
            candidate.has_same_value(&baseline, name) && !(is_other_program && is_default)
        };
        let names: Vec<String> =
            all.iter().filter(is_same).map(|name| (*name).to_owned()).collect();
        let without = |of: &Settings<'_>| {
            let server = PrivateServer {
                configuration: Vec::new(),
                options: Vec::new(),
                ..of.server.clone()
            };
            let system = System::Private(server);
            Candidate {
                name: String::new(),
                system,
                matrix: None,
                series: None,
                ..of.candidate.spec.clone()
            }
        };
        let is_all = names.len() == all.len() && without(&candidate) == without(&baseline);
        (!names.is_empty()).then_some(Self { candidate, names, is_all })
    }

    fn settings(&self, baseline: Settings<'a>) -> impl Iterator<Item = SameSetting> {
        self.names.iter().map(move |name| {
            let is_own = self.candidate.own(name).is_some();
            let (setter, other) =
                if is_own { (self.candidate, baseline) } else { (baseline, self.candidate) };
            let asked = setter.own(name).unwrap_or_default();
            // The same words before and after the start.
            let value = other.plan.setting(name).or_else(|| other.value(name)).unwrap_or(asked);
            SameSetting {
                is: format!("{name}: it is {value}"),
                whose: other.whose(name),
                asked: asked.to_owned(),
                is_own,
                by_dbdyno: other.own(name).is_none() && other.plan.setting(name).is_some(),
            }
        })
    }
}

/// A setting without effect, in the words of its warning.
#[derive(PartialEq)]
struct SameSetting {
    is: String,
    whose: &'static str,
    asked: String,
    /// Whether candidates set what the baseline has anyway, not the baseline what they have.
    is_own: bool,
    by_dbdyno: bool,
}

impl SameSetting {
    /// `no difference in jit: it is off in the baseline a already, …, and b sets off`.
    fn warning(&self, candidates: &[&str], baseline: &str) -> Warning {
        let Self { is, whose, asked, .. } = self;
        let candidates = candidates.join(", ");
        let (others, setters) = match self.is_own {
            true => (format!("the baseline {baseline}"), &*candidates),
            false => (candidates, baseline),
        };
        let set = if setters.contains(", ") { "set" } else { "sets" };
        let what = format!(
            "no difference in {is} in {others} already, {whose}, and {setters} {set} {asked}"
        );
        Warning { what, advice: advice(self.by_dbdyno) }
    }
}

/// The names of all that have an equal value, by value in the order of its first.
pub(super) fn by_value<'n, T: PartialEq>(
    all: impl Iterator<Item = (T, &'n str)>,
) -> Vec<(T, Vec<&'n str>)> {
    let mut groups: Vec<(T, Vec<&str>)> = Vec::new();
    for (value, name) in all {
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, names)) => names.push(name),
            None => groups.push((value, vec![name])),
        }
    }
    groups
}

/// What to do about a setting without effect; `by_dbdyno` if the other server has it by dbdyno's defaults.
fn advice(by_dbdyno: bool) -> String {
    let defaults = ", or measure against the server's own defaults with `defaults = \"server\"` of the \
                    baseline and the candidate (compare: `SYSTEM:defaults=server \
                    'SYSTEM:defaults=server{NAME=VALUE}'`)";
    format!("set another value{}", if by_dbdyno { defaults } else { "" })
}

fn of_role<'s, 'a>(
    servers: &'s [Settings<'a>],
    role: Role,
) -> impl Iterator<Item = &'s Settings<'a>> {
    servers.iter().filter(move |one| one.candidate.role == role)
}

/// The candidates that set something without effect.
fn same_as_baseline<'a>(servers: &[Settings<'a>]) -> Vec<SameEffect<'a>> {
    let Some(baseline) = of_role(servers, Role::Baseline).next() else { return Vec::new() };
    let candidates = of_role(servers, Role::Candidate);
    candidates.filter_map(|one| SameEffect::of(*one, *baseline)).collect()
}

/// Warnings about settings without effect; an error if nothing else is compared in all `compared` candidates.
fn same_effects(servers: &[Settings<'_>], compared: usize) -> Result<Vec<Warning>, RunError> {
    let Some(&baseline) = of_role(servers, Role::Baseline).next() else { return Ok(Vec::new()) };
    let same = same_as_baseline(servers);
    let settings = same
        .iter()
        .flat_map(|one| one.settings(baseline).map(move |setting| (setting, one.candidate.name())));
    let warnings: Vec<Warning> = by_value(settings)
        .iter()
        .map(|(setting, names)| setting.warning(names, baseline.name()))
        .collect();
    if compared > 0 && same.iter().filter(|one| one.is_all).count() == compared {
        let all = warnings.iter().map(|one| format!("{}; {}", one.what, one.advice));
        let all: Vec<String> = all.collect();
        return Err(RunError::Settings(format!("nothing to compare: {}", all.join("\n"))));
    }
    Ok(warnings)
}

/// The same before anything is compiled or loaded, from what servers will be asked for. A run with other systems has
/// something to compare.
pub(super) fn planned(candidates: &[ResolvedCandidate]) -> Result<Vec<Warning>, RunError> {
    let servers: Vec<Settings<'_>> =
        candidates.iter().filter_map(|one| Settings::of(one, None)).collect();
    same_effects(&servers, candidates.iter().filter(|one| one.role == Role::Candidate).count())
}

/// A warning for each candidate with caches whose sizes differ from the baseline's although the data fits into the
/// smaller ones.
fn small_data(servers: &[Settings<'_>], data: Bytes, rows: u64) -> Vec<Warning> {
    let Some(baseline) = of_role(servers, Role::Baseline).next() else { return Vec::new() };
    let kind = |one: &Settings<'_>| (one.server.system, one.server.engine);
    let candidates = of_role(servers, Role::Candidate);
    let sizes_of = |one: &Settings<'_>| {
        let sizes = one.plan.cache_settings().filter_map(|name| {
            let size = |of: &Settings<'_>| Some(of.reported(name)?.number()? as u64);
            let (own, other) = (size(one)?, size(baseline)?);
            (own != other && data.as_bytes() <= own.min(other)).then_some((name, own, other))
        });
        sizes.collect::<Vec<(&str, u64, u64)>>()
    };
    let warning = |(sizes, names): (Vec<(&str, u64, u64)>, Vec<&str>)| {
        let smallest = sizes.iter().map(|(_, own, other)| *own.min(other)).min()?;
        // Nothing is known of data without a size.
        let times = smallest.checked_div(data.as_bytes())? + 1;
        let caches = sizes.iter().map(|(name, own, other)| {
            let [own, other] = [own, other].map(|size| Bytes::from_bytes(*size));
            format!("{name} ({own} of {}, {other} of {})", names.join(", "), baseline.name())
        });
        let caches: Vec<String> = caches.collect();
        let enough = grouped(rounded_up(rows.max(1).saturating_mul(2 * times)));
        Some(Warning {
            what: format!(
                "the data is too small to feel {}: its {data} fit into each",
                caches.join(" and ")
            ),
            advice: format!(
                "use more data than the smaller cache holds: here about {enough} rows (`--rows`, or `rows` under \
                 [workload])"
            ),
        })
    };
    let sizes =
        candidates.filter(|one| kind(one) == kind(baseline)).map(|one| (sizes_of(one), one.name()));
    by_value(sizes).into_iter().filter_map(warning).collect()
}

/// One significant digit.
fn rounded_up(number: u64) -> u64 {
    let step = 10_u64.pow(number.max(1).ilog10());
    number.div_ceil(step).saturating_mul(step)
}

/// A warning for a value that differs much from what was asked for.
fn adjusted_warning(candidate: &str, setting: &AdjustedSetting) -> Warning {
    let AdjustedSetting { name, asked, in_force } = setting;
    Warning {
        what: format!("{name} of {candidate}: asked {asked} → in force {in_force}"),
        advice: "the server changed the value; the results are those of the value in force"
            .to_owned(),
    }
}

/// Notes in the record which values are in force.
fn note_in_force(
    record: &mut CandidateRecord,
    adjusted: &[AdjustedSetting],
    without_effect: &[String],
    log: &[String],
) {
    for AdjustedSetting { name, in_force, .. } in adjusted {
        for (_, value) in record.configuration.iter_mut().filter(|(label, _)| label == name) {
            value.clone_from(in_force);
        }
    }
    record.in_force.adjusted = adjusted.to_vec();
    record.in_force.without_effect = without_effect.to_vec();
    record.in_force.server_log = log.to_vec();
}

/// Starts a candidate without data and stops it again. Also returns why it did not start.
fn start_without_data(
    context: &RunContext<'_>,
    candidate: &ResolvedCandidate,
) -> Result<(Instance, Result<(), WorkerError>), RunError> {
    let location = context.data_location(candidate, ".settings");
    location.remove()?;
    data::initialise_server(candidate, &location)?;
    let mut instance = Instance::at(candidate.clone(), location.clone());
    let opened = instance.open(context, 1, true);
    instance.stop();
    location.remove_data()?;
    Ok((instance, opened))
}

impl Session<'_> {
    /// Checks the settings in force of instances that have started, before anything is measured, and stores what the
    /// servers made of them.
    pub(super) fn check_settings_in_force(
        &mut self,
        instances: &[&Instance],
        compared: usize,
    ) -> Result<(), RunError> {
        let servers: Vec<Settings<'_>> = instances
            .iter()
            .filter_map(|one| {
                Settings::of(&one.candidate, Some(*one).filter(|one| one.opened.is_some()))
            })
            .collect();
        refuse_ignored(&servers)?;
        let mut warnings = Vec::new();
        let same = same_as_baseline(&servers);
        for one in &servers {
            let (_, adjusted) = one.compare();
            let is_control = one.candidate.role == Role::Control;
            let asked = |setting: &AdjustedSetting| one.own(&setting.name).is_some() && !is_control;
            let changed = adjusted.iter().filter(|(_, effect)| *effect == Effect::Adjusted);
            let changed = changed.filter(|(setting, _)| asked(setting));
            warnings.extend(changed.map(|(setting, _)| adjusted_warning(one.name(), setting)));
            let adjusted: Vec<AdjustedSetting> = adjusted.into_iter().map(|(one, _)| one).collect();
            let without_effect = same.iter().find(|same| same.candidate.name() == one.name());
            self.store_in_force(one, &adjusted, without_effect.map_or(&[], |same| &same.names))?;
        }
        warnings.extend(same_effects(&servers, compared)?);
        self.warn_once(warnings)
    }

    fn store_in_force(
        &mut self,
        server: &Settings<'_>,
        adjusted: &[AdjustedSetting],
        without_effect: &[String],
    ) -> Result<(), RunError> {
        let mut all = (0..).zip(&mut self.state.candidates);
        let Some((number, record)) = all.find(|(_, record)| record.name == server.name()) else {
            return Ok(());
        };
        let before = record.clone();
        let log = server.started.map_or(&[][..], |one| &one.server_log[..]);
        note_in_force(record, adjusted, without_effect, log);
        record.in_force.set_to_default = server.set_to_default();
        if *record != before {
            self.recorder.results.update_candidate(number, record)?;
        }
        Ok(())
    }

    /// Warns of caches that differ although all data fits into each.
    pub(super) fn warn_of_small_data(
        &mut self,
        instances: &[Instance],
        states: &[StateSnapshotRecord],
    ) -> Result<(), RunError> {
        let servers: Vec<Settings<'_>> =
            instances.iter().filter_map(|one| Settings::of(&one.candidate, Some(one))).collect();
        let baseline = states.iter().find(|state| state.candidate == 0);
        let Some(state) = baseline.map(|state| &state.state_snapshot) else { return Ok(()) };
        self.warn_once(small_data(&servers, state.data_size, state.rows))
    }

    /// Reports and stores warnings that are new.
    pub(super) fn warn_once(&mut self, mut warnings: Vec<Warning>) -> Result<(), RunError> {
        warnings.retain(|warning| !self.record.warnings.contains(warning));
        if warnings.is_empty() { Ok(()) } else { self.warn(warnings) }
    }

    /// Starts a server without data for candidates with settings that are known only from what it reports: all data
    /// would be loaded before the last candidate of its kind starts.
    pub(super) fn check_settings_before_loading(
        &self,
        context: &RunContext<'_>,
        candidates: &[ResolvedCandidate],
    ) -> Result<(), RunError> {
        if self.state.has_measured() {
            return Ok(());
        }
        let mut checked = Vec::new();
        for candidate in candidates.iter().filter(|one| one.role != Role::Control) {
            let Some(settings) = Settings::of(candidate, None) else { continue };
            let program = (&settings.plan.installation().sha256, settings.plan.engine());
            let unchecked = settings.unchecked().map(|setting| (program, setting));
            let unchecked: Vec<_> = unchecked.filter(|one| !checked.contains(one)).collect();
            if unchecked.is_empty() {
                continue;
            }
            checked.extend(unchecked);
            self.recorder.check_cancelled()?;
            self.recorder.stage(format!("checking settings of {}", candidate.name));
            let (instance, opened) = start_without_data(context, candidate)?;
            // One that does not start fails again when it is measured, and the others are measured.
            if opened.is_ok() {
                let settings = Settings::of(candidate, Some(&instance));
                refuse_ignored(&settings.into_iter().collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// Starts a server without data for each candidate that sets something, and for the baseline: in an insert
    /// benchmark one candidate is measured for hours before the next one starts.
    pub(super) fn check_settings_before_inserts(
        &mut self,
        context: &RunContext<'_>,
        candidates: &[ResolvedCandidate],
    ) -> Result<(), RunError> {
        let sets = |one: &&ResolvedCandidate| {
            let settings = Settings::of(one, None);
            settings.is_some_and(|one| one.plan.own_settings().next().is_some())
                && one.role != Role::Control
        };
        if self.state.has_measured() || !candidates.iter().any(|one| sets(&one)) {
            return Ok(());
        }
        self.recorder.stage("checking settings");
        let mut instances = Vec::new();
        for candidate in candidates.iter().filter(|one| sets(one) || one.role == Role::Baseline) {
            let (instance, opened) = start_without_data(context, candidate)?;
            self.recorder.check_cancelled()?;
            opened.map_err(|error| {
                RunError::Other(format!("candidate {}: {error}", candidate.name))
            })?;
            instances.push(instance);
        }
        let compared = candidates.iter().filter(|one| one.role == Role::Candidate).count();
        self.check_settings_in_force(&instances.iter().collect::<Vec<_>>(), compared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_with_the_same_value_share_a_warning() {
        let setting = |is_own| SameSetting {
            is: "jit: it is off".to_owned(),
            whose: "by the server's default",
            asked: "off".to_owned(),
            is_own,
            by_dbdyno: false,
        };
        let all = [(setting(true), "b"), (setting(false), "c"), (setting(true), "d")];
        let groups = by_value(all.into_iter());
        let texts: Vec<String> =
            groups.iter().map(|(one, names)| one.warning(names, "a").what).collect();
        let expected = [
            "no difference in jit: it is off in the baseline a already, by the server's default, and b, d set off",
            "no difference in jit: it is off in c already, by the server's default, and a sets off",
        ];
        assert_eq!(texts, expected);
    }
}
