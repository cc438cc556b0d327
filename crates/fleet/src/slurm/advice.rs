//! What an error of Slurm means: whether to ask again, and what to change.

use crate::controller::ClusterError;

/// Words of errors after which the same command may succeed later.
const TRANSIENT: [&str; 9] = [
    "Unable to contact",
    "timed out",
    "Connection refused",
    "Zero Bytes",
    "temporarily",
    "try again",
    "Communication connection failure",
    "submit limit",
    "slurmctld is in standby",
];

/// What to change after which error.
const ADVICE: [(&str, &str); 7] = [
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
];

/// The error of a program of Slurm that printed this.
pub(super) fn error(program: &str, printed: &str) -> ClusterError {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_advice_and_silence_is_no_refusal() {
        let invalid = "sbatch: error: invalid partition specified: x\n\
                       sbatch: error: Batch job submission failed: Invalid partition name specified\n";
        let ClusterError::Refused(text) = error("sbatch", invalid) else { panic!("{invalid}") };
        assert!(text.contains("Invalid partition name specified. `sinfo` lists"), "{text}");
        let silent = "squeue: error: Unable to contact slurm controller (connect failure)";
        assert!(matches!(error("squeue", silent), ClusterError::NoAnswer(_)));
        assert_eq!(
            error("sbatch", "\n"),
            ClusterError::Refused("sbatch failed and printed nothing".to_owned())
        );
    }
}
