//! The script of a job.

use std::path::Path;

use dbdyno_units::shell_quoted;

/// The script that runs an attempt. Slurm's signals reach dbdyno, which takes the place of the shell.
#[must_use]
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
    fn paths_are_quoted_for_the_shell() {
        let script = job_script(Path::new("/home/o'b $(x)/f"), "n1", 2);
        let last = script.lines().last().unwrap();
        assert_eq!(
            last,
            "exec '/home/o'\\''b $(x)/f/dbdyno' fleet task '/home/o'\\''b $(x)/f' n1 2"
        );
    }
}
