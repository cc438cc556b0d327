//! What tests that run at the same time could take from each other: ports, and programs that are being written.
//! Also for tests of other crates.
#![allow(dead_code, reason = "not all of them use all")]

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that Linux gives to outgoing connections: nothing else takes one of these
/// between the choice and the start of the server.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A port of 127.0.0.1 that nothing listens on, and that this process did not return before.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at the same time start at different ports.
    let start = std::process::id() % u32::from(COUNT) * 97;
    for _ in 0..COUNT {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + ((start + step) % u32::from(COUNT)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {FIRST} to {}", FIRST + COUNT - 1)
}

/// Writes a program by another process: one that a test starts meanwhile would inherit the open file, and a file that
/// somebody may write to cannot be executed.
pub fn write_program(path: &Path, text: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", text]).arg(path);
    assert!(shell.status().unwrap().success(), "{}", path.display());
}
