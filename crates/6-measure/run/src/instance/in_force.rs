//! What the private servers of instances make of their settings.

use dbdyno_engines::in_force::{Effect, SettingInForce, SettingState, is_same_value};
use dbdyno_engines::server::ServerPlan;
use dbdyno_results::{AdjustedSetting, Role};
use dbdyno_spec::experiment::{PrivateServer, System};

use crate::candidates::{Deployment, ResolvedCandidate};
use crate::error::RunError;
use crate::instance::Instance;

/// A private server with what is known about its settings.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a> {
    pub candidate: &'a ResolvedCandidate,
    pub server: &'a PrivateServer,
    pub plan: &'a ServerPlan,
    /// The instance, once it has started.
    pub started: Option<&'a Instance>,
}

impl<'a> Settings<'a> {
    pub fn of(candidate: &'a ResolvedCandidate, started: Option<&'a Instance>) -> Option<Self> {
        match (&candidate.spec.system, &candidate.deployment) {
            (System::Private(server), Deployment::Private(plan)) => {
                Some(Self { candidate, server, plan, started })
            }
            _ => None,
        }
    }

    pub fn name(&self) -> &'a str {
        &self.candidate.name
    }

    pub fn own(&self, name: &str) -> Option<&'a str> {
        self.plan.own_settings().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// The candidate's settings that its server ignores without a message if it does not know them.
    pub fn unchecked(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.plan.own_settings().filter(|(name, _)| !is_checked_at_start(name))
    }

    fn state(&self, name: &str) -> Option<&'a SettingState> {
        let mut reported = self.started?.opened.as_ref()?.in_force.iter();
        Some(&reported.find(|one| one.name == name)?.state)
    }

    pub fn reported(&self, name: &str) -> Option<&'a SettingInForce> {
        match self.state(name)? {
            SettingState::Reported(setting) => Some(setting),
            SettingState::Unknown(_) => None,
        }
    }

    /// The value in force, or before the start the one that it will be asked for.
    pub fn value(&self, name: &str) -> Option<&'a str> {
        match self.reported(name) {
            Some(setting) => Some(&setting.value),
            None => self.plan.setting(name),
        }
    }

    pub fn has_same_value(&self, other: &Self, name: &str) -> bool {
        match (self.reported(name), other.reported(name)) {
            (Some(own), Some(other)) => own.is_same(other),
            _ => match (self.plan.setting(name), other.plan.setting(name)) {
                (Some(own), Some(other)) => is_same_value(own, other),
                _ => false,
            },
        }
    }

    /// The settings that the candidate sets to what is known to be the server's own default.
    pub fn set_to_default(&self) -> Vec<String> {
        let equals = |name: &str| self.reported(name).is_some_and(SettingInForce::equals_default);
        let own = self.plan.own_settings().map(|(name, _)| name);
        own.filter(|name| equals(name)).map(str::to_owned).collect()
    }

    /// Who has set a value that the candidate itself does not set.
    pub fn whose(&self, name: &str) -> &'static str {
        match self.plan.setting(name) {
            _ if self.own(name).is_some() => "by its configuration",
            Some(_) => "by dbdyno's defaults for benchmarks",
            None => "by the server's default",
        }
    }

    /// The lines of its log about a setting.
    fn log_of(&self, name: &str) -> Vec<&'a str> {
        let stem = name.strip_prefix("loose_").unwrap_or(name).to_lowercase();
        let log = self.started.map_or(&[][..], |one| &one.server_log[..]);
        let is_about = |line: &&String| line.to_lowercase().replace('-', "_").contains(&stem);
        log.iter().filter(is_about).map(String::as_str).collect()
    }

    /// The settings of the candidate that are not in force, each with the reason, and those that are in force with
    /// another value.
    pub fn compare(&self) -> (Vec<String>, Vec<(AdjustedSetting, Effect)>) {
        let (mut refused, mut adjusted) = (Vec::new(), Vec::new());
        for (name, asked) in self.plan.settings() {
            let is_own = self.own(name).is_some();
            let refuse = |in_force: &str, why: String| {
                let log = self.log_of(name);
                let log = match log.is_empty() {
                    true => String::new(),
                    false => format!("; its log: {}", log.join(" ")),
                };
                let candidate = self.name();
                format!("candidate {candidate}: {name}: asked {asked} → {in_force}{why}{log}")
            };
            match self.state(name) {
                Some(SettingState::Reported(setting)) => match setting.effect(asked) {
                    Effect::AsAsked => {}
                    Effect::Ignored if is_own => {
                        let valid = setting.valid();
                        let why = valid.map_or_else(String::new, |all| format!(" (valid: {all})"));
                        refused.push(refuse(&format!("in force {}", setting.value), why));
                    }
                    effect => adjusted.push((
                        AdjustedSetting {
                            name: name.clone(),
                            asked: asked.clone(),
                            in_force: setting.written_as(asked),
                        },
                        effect,
                    )),
                },
                Some(SettingState::Unknown(near)) if is_own => {
                    let is_checked_at_start = is_checked_at_start(name);
                    let why = match near {
                        // An option without a variable, perhaps one that a later version removes.
                        _ if is_checked_at_start
                            && self.log_of(name).iter().all(|line| line.contains("deprecated")) =>
                        {
                            continue;
                        }
                        // Its log says why: the server has removed the setting, for example.
                        _ if is_checked_at_start => String::new(),
                        Some(near) => format!(": no such setting; did you mean `{near}`?"),
                        None => ": no such setting, or nothing loads its library".to_owned(),
                    };
                    refused.push(refuse("not in force", why));
                }
                Some(SettingState::Unknown(_)) | None => {}
            }
        }
        (refused, adjusted)
    }
}

/// Whether a server that does not know a setting of this name refuses to start.
fn is_checked_at_start(name: &str) -> bool {
    !name.starts_with("loose_") && !name.contains('.')
}

/// Ends the run if a setting of a candidate is not in force. The control has the settings of the baseline.
pub(crate) fn refuse_ignored(servers: &[Settings<'_>]) -> Result<(), RunError> {
    let not_control = servers.iter().filter(|one| one.candidate.role != Role::Control);
    let mut refused: Vec<String> = not_control.flat_map(|one| one.compare().0).collect();
    if refused.is_empty() {
        return Ok(());
    }
    refused.push("nothing was measured: correct the values, or remove the settings".to_owned());
    Err(RunError::Settings(refused.join("\n")))
}
