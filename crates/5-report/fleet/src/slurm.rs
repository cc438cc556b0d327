//! Slurm: calling its programs, and what their errors mean.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use dbdyno_units::shell_quoted;
use rustix::process::geteuid;

use crate::controller::{Cluster, ClusterError, Submission};
use crate::jobs::{self, Job, JobEnd, Node};
use crate::plan;
use crate::record::{FleetRecord, JobId, Request};

/// Variables that a job gets. Others may hold passwords, which Slurm would store.
const ENVIRONMENT: &str = "PATH,HOME,USER,LOGNAME,LANG,LC_ALL,XDG_CACHE_HOME,XDG_CONFIG_HOME,\
                           XDG_STATE_HOME,DBDYNO_LOG";

/// Starts of variables with a user's defaults for Slurm's programs. They would hide jobs and nodes.
const DEFAULTS: [&str; 4] = ["SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_"];

/// Jobs in one command.
const JOBS_PER_CALL: usize = 500;

/// How long before its time limit a job is told to stop, in seconds: for the last slice, to stop servers
/// and to copy the run.
const STOP_BEFORE_LIMIT: u64 = 120;

/// The Slurm that this machine is a client of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slurm;

impl Slurm {
    /// Checks that Slurm's programs are here and that its controller answers.
    pub fn check() -> Result<(), ClusterError> {
        call("scontrol", ["ping"]).map(drop)
    }

    /// The nodes of a partition that have the features of the request's constraint.
    pub fn nodes_for(request: &Request) -> Result<Vec<Node>, ClusterError> {
        let format = format!("--format={}", jobs::SINFO);
        let text = call("sinfo", ["--noheader", "--Node", "--all", &format])?;
        let mut nodes = jobs::nodes(&text, request.partition.as_deref());
        let partition = plan::partition(request);
        if nodes.is_empty() {
            let names = call("sinfo", ["--noheader", "--format=%R"])?;
            let names: Vec<&str> = names.lines().map(str::trim).collect();
            return Err(ClusterError::Unknown(format!(
                "{partition} has no nodes or does not exist; the partitions are: {}",
                names.join(", ")
            )));
        }
        if let Some(constraint) = &request.constraint {
            let Some(features) = jobs::features(constraint) else {
                return Err(ClusterError::Unknown(format!(
                    "constraint `{constraint}`: dbdyno chooses the nodes itself and knows only \
                     features that must all be there, such as `a&b`; name the nodes with --nodelist"
                )));
            };
            nodes.retain(|node| features.iter().all(|one| node.features.iter().any(|f| f == one)));
            if nodes.is_empty() {
                let text =
                    format!("{partition} has no node; `sinfo --format='%N %f'` lists the features");
                return Err(ClusterError::Unknown(text));
            }
        }
        Ok(nodes)
    }

    /// The nodes that an expression such as `node[1-3]` names.
    pub fn expand(nodes: &str) -> Result<Vec<String>, ClusterError> {
        let text = call("scontrol", ["show", "hostnames", nodes])?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }
}

impl Cluster for Slurm {
    fn jobs(&mut self) -> Result<Vec<Job>, ClusterError> {
        let text = call("squeue", listing_arguments(geteuid().as_raw()))?;
        Ok(jobs::jobs(&text))
    }

    fn ended(&mut self, jobs: &[JobId]) -> Vec<(JobId, JobEnd)> {
        let format = format!("--format={}", jobs::SACCT);
        let ended = |some: &[JobId]| {
            let jobs = format!("--jobs={}", joined(some, ","));
            let args = ["--noheader", "--parsable2", "--allocations", &jobs, &format];
            match call("sacct", args) {
                Ok(text) => jobs::ended(&text),
                // Many sites have no accounting.
                Err(error) => {
                    tracing::debug!(%error, "no accounting");
                    Vec::new()
                }
            }
        };
        jobs.chunks(JOBS_PER_CALL).flat_map(ended).collect()
    }

    fn nodes(&mut self, record: &FleetRecord) -> Result<Vec<Node>, ClusterError> {
        Self::nodes_for(&record.request)
    }

    fn submit(&mut self, job: &Submission<'_>) -> Result<JobId, ClusterError> {
        let text =
            call("sbatch", arguments(job)).map_err(|error| limit(error, job.record.has_jobs()))?;
        jobs::submitted(&text).ok_or_else(|| {
            ClusterError::NoAnswer(format!("sbatch printed no job number: {}", text.trim()))
        })
    }

    fn cancel(&mut self, jobs: &[JobId]) -> Result<(), ClusterError> {
        let calls = jobs.chunks(JOBS_PER_CALL);
        let calls = calls.map(|some| call("scancel", some.iter().map(JobId::to_string)));
        // One that may be repeated first.
        let is_final = |error: &ClusterError| !matches!(error, ClusterError::NoAnswer(_));
        calls.filter_map(Result::err).min_by_key(is_final).map_or(Ok(()), Err)
    }
}

/// The arguments of `squeue` for the jobs of a user, which may be in hidden partitions.
fn listing_arguments(user: u32) -> [String; 5] {
    let format = format!("--format={}", jobs::SQUEUE);
    let user = format!("--user={user}");
    ["--noheader", "--states=all", "--all", &user, &format].map(str::to_owned)
}

fn arguments(job: &Submission<'_>) -> Vec<OsString> {
    let request = &job.record.request;
    let mut args: Vec<OsString> = [
        "--parsable",
        "--no-requeue",
        "--exclusive",
        "--nodes=1",
        "--ntasks=1",
        // An exclusive job gets all CPUs, but not all memory.
        "--mem=0",
        "--chdir=/",
    ]
    .map(OsString::from)
    .into();
    args.push(format!("--export={ENVIRONMENT}").into());
    args.push(format!("--job-name={}", job.name).into());
    args.push(format!("--nodelist={}", job.node).into());
    if !job.after.is_empty() {
        // A site may have Slurm cancel such jobs, which would look like the user's doing.
        args.push("--kill-on-invalid-dep=no".into());
        args.push(format!("--dependency=afterok:{}", joined(&job.after, ":")).into());
    }
    let options = [
        ("--partition", &request.partition),
        ("--constraint", &request.constraint),
        ("--account", &request.account),
    ];
    for (option, value) in options {
        if let Some(value) = value {
            args.push(format!("{option}={value}").into());
        }
    }
    let mut before = STOP_BEFORE_LIMIT;
    if let Some(time) = request.time {
        let seconds = time.as_secs_f64().ceil() as u64;
        args.push(format!("--time={}", seconds.div_ceil(60)).into());
        before = before.min(seconds / 4);
    }
    args.push(format!("--signal=B:TERM@{before}").into());
    let mut output = OsString::from("--output=");
    // Slurm replaces patterns such as %j in it.
    output.push(job.directory.join("job.log").to_string_lossy().replace('%', "%%"));
    args.push(output);
    args.push(job.directory.join("job.sh").into());
    args
}

fn joined(jobs: &[JobId], separator: &str) -> String {
    let jobs: Vec<String> = jobs.iter().map(JobId::to_string).collect();
    jobs.join(separator)
}

/// Calls a program of Slurm; returns what it printed.
fn call<S: AsRef<std::ffi::OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = S>,
) -> Result<String, ClusterError> {
    let mut command = Command::new(program);
    // Not in the terminal's process group: Ctrl-C must not interrupt a submission.
    command.args(args).env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
    for (name, _) in std::env::vars_os() {
        if DEFAULTS.iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes())) {
            command.env_remove(name);
        }
    }
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => ClusterError::Refused(format!(
            "`{program}` was not found: fleet runs need Slurm. Call dbdyno on a machine from which \
             jobs are submitted, with Slurm's programs in PATH"
        )),
        _ => ClusterError::NoAnswer(format!("{program}: {error}")),
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    if output.status.code().is_none() {
        // It may have done what was asked.
        return Err(ClusterError::NoAnswer(format!("{program} was killed")));
    }
    let printed = format!("{}\n{text}", String::from_utf8_lossy(&output.stderr));
    Err(explain(program, &printed))
}

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
fn explain(program: &str, printed: &str) -> ClusterError {
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
fn limit(error: ClusterError, has_jobs: bool) -> ClusterError {
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
    use dbdyno_units::Nanos;

    use super::*;
    use crate::record::sample::fleet;

    #[test]
    fn killed_program_is_no_refusal_and_ctrl_c_does_not_reach_it() {
        let killed = call("sh", ["-c", "kill -KILL $$"]);
        assert_eq!(killed, Err(ClusterError::NoAnswer("sh was killed".to_owned())));
        let ids = "read -r stat < /proc/$$/stat; set -- $stat; echo $5 $1";
        let ids = call("sh", ["-c", ids]).unwrap();
        let (group, process) = ids.trim().split_once(' ').unwrap();
        assert_eq!(group, process, "it has its own process group");
    }

    #[test]
    fn jobs_of_the_user_are_listed_in_all_partitions_and_states() {
        let args = listing_arguments(1000);
        for expected in ["--all", "--states=all", "--user=1000", "--format=%i|%j|%T|%r"] {
            assert!(args.iter().any(|arg| arg == expected), "{expected} in {args:?}");
        }
    }

    #[test]
    fn jobs_are_exclusive_and_not_requeued_and_get_no_passwords() {
        let mut record = fleet(1);
        record.request.time = Some(Nanos::from_secs(90));
        let job = Submission {
            name: "name".to_owned(),
            task: "n001",
            attempt: 1,
            node: "n001",
            directory: "/f/100%/1".into(),
            after: vec![7, 8],
            record: &record,
        };
        let args: Vec<String> =
            arguments(&job).into_iter().map(|arg| arg.into_string().unwrap()).collect();
        for expected in [
            "--no-requeue",
            "--exclusive",
            "--nodelist=n001",
            "--partition=main",
            "--time=2",
            "--dependency=afterok:7:8",
            "--kill-on-invalid-dep=no",
            "--signal=B:TERM@22",
            "--output=/f/100%%/1/job.log",
        ] {
            assert!(args.iter().any(|arg| arg == expected), "{expected} in {args:?}");
        }
        assert!(!args.iter().any(|arg| arg.contains("PASSWORD") || arg.contains("account")));
        assert_eq!(args.last().unwrap(), "/f/100%/1/job.sh");
    }

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
