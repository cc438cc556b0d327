//! Slurm: what its programs print, and calling them.

mod commands;
mod listing;

use std::path::Path;

use dbdyno_units::shell_quoted;

use crate::controller::ClusterError;

pub use commands::Slurm;

/// Words of errors after which the same command may succeed later.
const TRANSIENT: [&str; 8] = [
    "Unable to contact",
    "timed out",
    "Connection refused",
    "Zero Bytes",
    "temporarily",
    "try again",
    "Communication connection failure",
    "slurmctld is in standby",
];

/// Slurm's words for any limit of an account or QOS: on the number of jobs, or on the size or time of one.
const LIMIT: &str = "accounting/QOS policy";

/// What to change after which error.
const ADVICE: [(&str, &str); 8] = [
    ("Invalid partition", "`sinfo` lists the partitions: choose one with --partition"),
    ("Invalid account", "`sacctmgr show associations user=$USER` lists yours: use --account"),
    ("node name", "`sinfo --Node` lists the nodes"),
    (
        "Requested node configuration is not available",
        "no node of the partition has what is requested: check --nodelist and --constraint",
    ),
    ("Requested time limit", "`scontrol show partition` shows its MaxTime: use a shorter --time"),
    ("Invalid feature", "`sinfo --format='%N %f'` lists the features of nodes: check --constraint"),
    (
        "Invalid qos",
        "`sacctmgr show qos` lists them; dbdyno uses the default of the account: see --account",
    ),
    (
        LIMIT,
        "`sacctmgr show associations user=$USER` and `sacctmgr show qos` show the limits: compare them \
         with --time, --account and the number of your jobs",
    ),
];

/// The error of a program of Slurm that printed this.
pub(super) fn explain(program: &str, printed: &str) -> ClusterError {
    let printed = printed.trim();
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = match lines.is_empty() {
        true => format!("{program} failed and printed nothing"),
        false => lines.join("; "),
    };
    if TRANSIENT.iter().any(|words| printed.contains(words)) {
        return ClusterError::NoAnswer(text);
    }
    let advice = ADVICE.iter().find(|(words, _)| printed.contains(words));
    ClusterError::Refused(match advice {
        Some((_, advice)) => format!("{text}. {advice}"),
        None => text,
    })
}

/// The error of a submission. After a limit it may succeed later if Slurm has accepted jobs of this
/// fleet run, which have the same size and time limit.
pub(super) fn limit(error: ClusterError, has_jobs: bool) -> ClusterError {
    match error {
        ClusterError::Refused(text) if has_jobs && text.contains(LIMIT) => {
            ClusterError::NoAnswer(text)
        }
        error => error,
    }
}

/// The script that runs an attempt. Slurm's signals reach dbdyno, which takes the place of the shell.
pub fn job_script(fleet: &Path, task: &str, attempt: u32) -> String {
    let program = shell_quoted(&fleet.join("dbdyno").to_string_lossy());
    let (fleet, task) = (shell_quoted(&fleet.to_string_lossy()), shell_quoted(task));
    format!(
        "#!/bin/sh\n# One attempt of a task of a fleet run. Submitted by dbdyno.\n\
         exec {program} fleet task {fleet} {task} {attempt}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_a_refusal_until_a_job_was_accepted() {
        let printed = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy \
                       (job submit limit, user's size and/or time limits)\n";
        let ClusterError::Refused(text) = limit(explain("sbatch", printed), false) else {
            panic!("{printed}")
        };
        assert!(text.contains("time limits). `sacctmgr show associations"), "{text}");
        assert_eq!(limit(explain("sbatch", printed), true), ClusterError::NoAnswer(text));
        let invalid = explain("sbatch", "Invalid qos specification");
        assert_eq!(limit(invalid.clone(), true), invalid);
    }

    #[test]
    fn refusals_have_advice_and_silence_is_no_refusal() {
        let invalid = "sbatch: error: invalid partition specified: x\n\
                       sbatch: error: Batch job submission failed: Invalid partition name specified\n";
        let ClusterError::Refused(text) = explain("sbatch", invalid) else { panic!("{invalid}") };
        assert!(text.contains("Invalid partition name specified. `sinfo` lists"), "{text}");
        let silent = "squeue: error: Unable to contact slurm controller (connect failure)";
        assert!(matches!(explain("squeue", silent), ClusterError::NoAnswer(_)));
        assert_eq!(
            explain("sbatch", "\n"),
            ClusterError::Refused("sbatch failed and printed nothing".to_owned())
        );
    }

    #[test]
    fn paths_are_quoted_for_the_shell() {
        let script = job_script(Path::new("/home/o'b $(x)/f"), "n1", 2);
        let last = script.lines().last().unwrap();
        assert_eq!(
            last,
            "exec '/home/o'\\''b $(x)/f/dbdyno' fleet task '/home/o'\\''b $(x)/f' n1 2"
        );
    }
}
