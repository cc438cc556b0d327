use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Signal;

/// Maximum number of lines of a compiler's output in an error; the log has all.
const SHOWN: usize = 40;

/// Why a compiler failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It rejected the source or the flags, or crashed.
    Refused,
    /// No space was left on the disk.
    DiskFull,
    /// It was killed; the text is the signal or the compiler's message.
    Interrupted(String),
}

/// Determines the cause from the exit status and the output.
pub(crate) fn cause(status: ExitStatus, message: &str) -> Cause {
    const ENDING: [i32; 7] = [
        Signal::HUP.as_raw(),
        Signal::INT.as_raw(),
        Signal::QUIT.as_raw(),
        Signal::KILL.as_raw(),
        Signal::TERM.as_raw(),
        Signal::XCPU.as_raw(),
        Signal::XFSZ.as_raw(),
    ];
    if let Some(signal) = status.signal().filter(|signal| ENDING.contains(signal)) {
        return Cause::Interrupted(format!("signal {signal}"));
    }
    // A compiler consists of several processes. If one of them is killed, the compiler driver
    // reports it and exits with an ordinary error status.
    let killed = |line: &&str| {
        let by_signal = line.contains("signal terminated program")
            || line.contains("unable to execute command:")
            || line.contains("terminated with signal");
        by_signal
            && ["Killed", "Terminated", "Interrupt", "Hangup"].iter().any(|s| line.contains(s))
    };
    if let Some(line) = message.lines().find(killed) {
        return Cause::Interrupted(line.trim().to_owned());
    }
    let full = ["No space left on device", "Disk quota exceeded"];
    if full.iter().any(|text| message.contains(text)) {
        return Cause::DiskFull;
    }
    Cause::Refused
}

/// The last lines of a message, indented, with the number of omitted lines.
pub(crate) fn last_lines(message: &str) -> String {
    let mut lines: Vec<&str> = message.trim_end().lines().collect();
    // After a failed command, ninja waits for the running ones and prints their output.
    if let Some(failed) = lines.iter().position(|line| line.starts_with("FAILED: ")) {
        lines.truncate(failed + SHOWN);
    }
    if lines.is_empty() {
        return "  (no message)".to_owned();
    }
    let skipped = lines.len().saturating_sub(SHOWN);
    let mut text = String::new();
    if skipped > 0 {
        text = format!("  ({skipped} lines before these are in the log)\n");
    }
    let shown: Vec<String> = lines[skipped..].iter().map(|line| format!("  {line}")).collect();
    text + &shown.join("\n")
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn source_error_and_crash_are_refusals() {
        assert_eq!(cause(exit(1), "sqlite3.c:1: error: expected ';'"), Cause::Refused);
        assert_eq!(cause(ExitStatus::from_raw(Signal::SEGV.as_raw()), ""), Cause::Refused);
    }

    #[test]
    fn full_disk_is_recognized() {
        let message = "/tmp/cc1.s: fatal error: error writing to x.o: No space left on device";
        assert_eq!(cause(exit(1), message), Cause::DiskFull);
    }

    #[test]
    fn killed_compiler_is_recognized_by_status_or_message() {
        let by_signal = cause(ExitStatus::from_raw(Signal::KILL.as_raw()), "");
        assert_eq!(by_signal, Cause::Interrupted("signal 9".to_owned()));
        let message = "x\ngcc: fatal error: Killed signal terminated program cc1\ny";
        let line = "gcc: fatal error: Killed signal terminated program cc1".to_owned();
        assert_eq!(cause(exit(1), message), Cause::Interrupted(line));
        let clang = "clang: error: unable to execute command: Killed";
        assert_eq!(cause(exit(254), clang), Cause::Interrupted(clang.to_owned()));
    }

    #[test]
    fn damaged_messages_are_shortened() {
        let message = "x.c:1: error: y\ngcc: fatal error: Killed signal terminated program cc1\n";
        let words = ["\n", "\r", "FAILED: ", "No space left on device", "terminated with signal"];
        Fuzz::new(vec![message.repeat(40).into()]).words(&words).run(|message| {
            let message = String::from_utf8_lossy(message);
            let _ = cause(exit(1), &message);
            assert!(last_lines(&message).lines().count() <= 1 + SHOWN);
        });
    }

    #[test]
    fn long_message_is_reduced_to_last_lines() {
        let message: String = (1..=50).map(|i| format!("line {i}\n")).collect();
        let shown = last_lines(&message);
        assert!(shown.starts_with("  (10 lines before these are in the log)\n  line 11\n"));
        assert!(shown.ends_with("  line 50"));
        assert_eq!(last_lines("\n"), "  (no message)");
    }
}
