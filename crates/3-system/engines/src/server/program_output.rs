//! What a program prints about itself: its version, its options, its directories.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use dbdyno_units::visible;

use super::command::clear_environment;
use super::user::ServerUser;

/// Runs a program with these arguments to its end; returns its standard output. A program that fails
/// and prints nothing there is an error with the last line that it printed: the loader did not find
/// a library, for example.
///
/// If dbdyno is root, the program runs as `user`, the user that servers run as: a program that must
/// not serve as root must not print its version as root either.
pub(super) fn program_output<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
    user: &str,
) -> io::Result<String> {
    let user = ServerUser::choose(user)?;
    let mut command = Command::new(program);
    clear_environment(&mut command);
    command.args(arguments).stdin(Stdio::null()).current_dir("/");
    // SAFETY: between fork and exec only system calls are made, on data prepared before; nothing is
    // allocated and no lock is taken.
    unsafe { command.pre_exec(move || user.as_ref().map_or(Ok(()), ServerUser::assume)) };
    let output = command.output()?;
    if !output.status.success() && output.stdout.is_empty() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
        return Err(io::Error::other(format!("{}: {}", output.status, visible(last))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::user::is_root;
    use super::*;

    fn shell(script: &str) -> String {
        program_output(Path::new("/bin/sh"), ["-c", script], "nobody").unwrap()
    }

    #[test]
    fn program_that_does_not_start_is_explained() {
        let script = "echo 'error while loading shared libraries: libaio.so.1' >&2; exit 127";
        let error = program_output(Path::new("/bin/sh"), ["-c", script], "nobody").unwrap_err();
        let expected = "exit status: 127: error while loading shared libraries: libaio.so.1";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn programs_do_not_run_as_root() {
        if !is_root() {
            println!("skipped: dbdyno changes the user only if it is root");
            return;
        }
        assert_eq!(shell("id -u"), "65534\n");
        // Neither the groups of root nor the right to become root again.
        assert!(!shell("id -G").split_whitespace().any(|group| group == "0"));
        assert!(shell("cat /proc/self/status").contains("CapEff:\t0000000000000000"));
    }

    #[test]
    fn programs_see_nothing_of_the_environment() {
        let names: Vec<_> = std::env::vars().map(|(name, _)| name).collect();
        assert!(!names.is_empty());
        let printed = shell("env");
        for line in printed.lines() {
            let name = line.split('=').next().unwrap();
            assert!(["LC_ALL", "PATH", "PWD", "_", "SHLVL", "OLDPWD"].contains(&name), "{line}");
        }
    }
}
