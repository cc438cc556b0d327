//! Servers that are no databases, optimized and undone under load: every answer is checked.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{call, wait_until};
use dbdyno_fuzz::skip;

const CLIENTS: u64 = 4;

/// A server that listens on the socket `s` in its working directory.
struct Server(Child);

impl Server {
    /// Starts it; `None` if it is not installed.
    fn start(directory: &Path, program: &str, args: &[&str]) -> Option<Self> {
        let mut command = Command::new(program);
        command.args(args).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
        let child = match command.stderr(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) => {
                skip(&format!("{program}: {error}"));
                return None;
            }
        };
        let socket = directory.join("s");
        let is_there = || fs::metadata(&socket).is_ok_and(|it| it.file_type().is_socket());
        let server = Self(child);
        wait_until("the socket of the server", || {
            is_there() && UnixStream::connect(&socket).is_ok()
        });
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A request, and how its response starts and ends.
struct Exchange {
    request: String,
    start: String,
    end: String,
}

impl Exchange {
    fn exact(request: String, response: String) -> Self {
        Self { request, start: response.clone(), end: response }
    }

    fn make(&self, connection: &mut UnixStream) {
        connection.write_all(self.request.as_bytes()).unwrap();
        let mut response = Vec::new();
        let mut buffer = [0; 4096];
        while !response.ends_with(self.end.as_bytes()) {
            let read = connection.read(&mut buffer).unwrap();
            let text = String::from_utf8_lossy(&response);
            assert!(read > 0 && response.len() < 1 << 20, "{:?}: {text:?}", self.request);
            response.extend_from_slice(&buffer[..read]);
        }
        let text = String::from_utf8_lossy(&response);
        assert!(text.starts_with(&self.start), "{:?}: {text:?}", self.request);
    }
}

/// Optimizes the server and undoes that, while clients make the exchanges of each number.
fn optimize_under_load(directory: &Path, server: &Server, exchanges: fn(u64) -> Vec<Exchange>) {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (stop, count) = (&stop, &count);
            scope.spawn(move || {
                let mut connection = UnixStream::connect(directory.join("s")).unwrap();
                connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                for number in (client..).step_by(CLIENTS as usize) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    for exchange in exchanges(number) {
                        exchange.make(&mut connection);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let done = std::panic::catch_unwind(|| {
            let state = directory.join("state").display().to_string();
            let pid = server.0.id().to_string();
            let to = |words: &[&str]| {
                let rest = ["--pid", &pid, "--state", &state, "--max-pause", "500", "--json"];
                let done = call(["live"].iter().chain(words).chain(&rest).copied());
                done.assert_code(0);
                let before = count.load(Ordering::Relaxed);
                wait_until(&format!("answers after {words:?}"), || {
                    count.load(Ordering::Relaxed) > before + 100
                });
                done.out
            };
            let sampling = ["--seconds", "1", "--frequency", "1999", "--force"];
            let optimized = to(&[&["optimize"], &sampling[..]].concat());
            let optimized: serde_json::Value = serde_json::from_str(&optimized).unwrap();
            let moved = optimized[0]["optimized"]["statistics"]["functions_moved"].as_u64();
            assert!(moved.is_some_and(|moved| moved > 10), "{optimized}");
            to(&["undo"]);
            to(&["redo"]);
            to(&["undo"]);
        });
        stop.store(true, Ordering::Relaxed);
        done.unwrap();
    });
}

#[test]
fn redis_answers_right_while_it_is_optimized() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["--port", "0", "--unixsocket", "s", "--save", "", "--appendonly", "no"];
    let Some(server) = Server::start(directory.path(), "redis-server", &args) else { return };
    optimize_under_load(directory.path(), &server, |number| {
        let value = format!("{number:020}");
        vec![
            Exchange::exact(format!("SET k{number} {value} PX 1000\r\n"), "+OK\r\n".to_owned()),
            Exchange::exact(format!("GET k{number}\r\n"), format!("$20\r\n{value}\r\n")),
            Exchange::exact(format!("STRLEN k{number}\r\n"), ":20\r\n".to_owned()),
        ]
    });
}

#[test]
fn memcached_answers_right_while_it_is_optimized() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["-s", "s", "-t", "2", "-u", "root"];
    let Some(server) = Server::start(directory.path(), "memcached", &args) else { return };
    optimize_under_load(directory.path(), &server, |number| {
        let value = format!("{number:020}");
        vec![
            Exchange::exact(
                format!("set k{number} 0 10 20\r\n{value}\r\n"),
                "STORED\r\n".to_owned(),
            ),
            Exchange::exact(
                format!("get k{number}\r\n"),
                format!("VALUE k{number} 0 20\r\n{value}\r\nEND\r\n"),
            ),
        ]
    });
}

const NGINX: &str = "daemon off; master_process off; pid pid; error_log stderr; events {}
http {
    access_log off; log_not_found off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f;
    uwsgi_temp_path u; scgi_temp_path c; keepalive_requests 1000000000;
    server { listen unix:s; root .; }
}
";

#[test]
fn nginx_answers_right_while_it_is_optimized() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("nginx.conf"), NGINX).unwrap();
    fs::write(directory.path().join("page"), "a page\n".repeat(100)).unwrap();
    let prefix = format!("{}/", directory.path().display());
    let args = ["-p", &prefix, "-c", "nginx.conf"];
    let Some(server) = Server::start(directory.path(), "nginx", &args) else { return };
    optimize_under_load(directory.path(), &server, |number| {
        let request = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n");
        vec![
            Exchange {
                request: request("page"),
                start: "HTTP/1.1 200 OK\r\n".to_owned(),
                end: "a page\n".repeat(100),
            },
            Exchange {
                request: request(&format!("missing{number}")),
                start: "HTTP/1.1 404 Not Found\r\n".to_owned(),
                end: "</html>\r\n".to_owned(),
            },
        ]
    });
}
