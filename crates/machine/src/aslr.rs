//! Address space layout randomization, switched off for one child.
//!
//! Where the kernel puts a program's stack, heap and libraries is a random draw at each start,
//! and it moves results by a few percent. Measuring over many starts averages the draw out;
//! looking for a regression in one build, one may rather want the same draw each time.

use std::io;

/// Asks for the present personality without changing it.
const QUERY: libc::c_ulong = 0xffff_ffff;

/// Makes this process's next `exec` load the program at fixed addresses.
///
/// Meant for [`std::os::unix::process::CommandExt::pre_exec`]: it makes two system calls,
/// allocates nothing and takes no lock. The setting is inherited by all descendants and is lost
/// when a set-user-id program is executed.
///
/// # Errors
/// The kernel's, where it refuses: a container's seccomp filter may (`EPERM`).
pub fn disable_for_exec() -> io::Result<()> {
    let present = personality(QUERY)?;
    personality(present | libc::ADDR_NO_RANDOMIZE as libc::c_ulong)?;
    Ok(())
}

/// Whether this process's next `exec` loads the program at fixed addresses.
///
/// # Errors
/// The kernel's, where it refuses to tell.
pub fn is_disabled_for_exec() -> io::Result<bool> {
    Ok(personality(QUERY)? & libc::ADDR_NO_RANDOMIZE as libc::c_ulong != 0)
}

fn personality(persona: libc::c_ulong) -> io::Result<libc::c_ulong> {
    // SAFETY: takes a number, returns a number, and touches no memory of ours.
    match unsafe { libc::personality(persona) } {
        -1 => Err(io::Error::last_os_error()),
        previous => Ok(libc::c_ulong::from(previous.cast_unsigned())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    fn stack_of_a_child() -> Option<String> {
        let mut command = Command::new("cat");
        command.arg("/proc/self/maps");
        // SAFETY: the function is async-signal-safe, as its documentation says.
        unsafe { command.pre_exec(disable_for_exec) };
        let output = command.output().ok()?;
        let maps = String::from_utf8_lossy(&output.stdout).into_owned();
        maps.lines().find(|line| line.ends_with("[stack]")).map(str::to_owned)
    }

    #[test]
    fn the_stack_of_every_child_is_at_the_same_address() {
        // A sandbox that refuses the call makes the spawn fail: nothing to compare then.
        let Some(first) = stack_of_a_child() else { return };
        assert_eq!(stack_of_a_child(), Some(first));
        assert!(!is_disabled_for_exec().unwrap(), "the parent's own setting changed");
    }
}
