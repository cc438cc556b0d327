//! A headless Chromium driven over its devtools protocol.
//!
//! The protocol's pipe needs no port and no library: messages are JSON that end with a zero byte.
//! Chromium reads them from file descriptor 3 and writes to 4; the shell connects those to its
//! standard input and output. `--dump-dom` and `--screenshot` can neither send key events, nor set
//! widths below Chromium's minimum window width, nor emulate colour schemes.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long Chromium may take to exit before it is killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A browser with one page. It exits, and its files are removed, when the value is dropped.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: Receiver<Value>,
    session: Option<String>,
    id: u64,
    /// Exceptions and error messages of the page.
    pub errors: Vec<String>,
    /// Addresses that the page requested, other than its own.
    pub requests: Vec<String>,
    /// Profile, temporary files and the page.
    dir: tempfile::TempDir,
    screenshots: Option<OsString>,
}

impl Browser {
    /// Starts Chromium and opens an empty page.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .arg("-c")
            .arg("exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null")
            .arg("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
            .arg("about:blank")
            // Chromium leaves directories of its own there.
            .env("TMPDIR", dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh can be started");
        let input = child.stdin.take().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while reader.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let parsed = serde_json::from_slice(&message).unwrap();
                message.clear();
                if sender.send(parsed).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self {
            child,
            input,
            output,
            session: None,
            id: 0,
            errors: Vec::new(),
            requests: Vec::new(),
            dir,
            screenshots: std::env::var_os("DBDYNO_SCREENSHOTS"),
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", target);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method of the protocol and waits for its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).unwrap_or_else(|error| panic!("{NO_BROWSER}: {error}"));
        let answer = self.wait_for(method, |answer| answer["id"] == id);
        assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    /// Sends a message and returns its number.
    fn send(&mut self, method: &str, params: Value) -> std::io::Result<u64> {
        self.id += 1;
        let mut message = json!({ "id": self.id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes)?;
        Ok(self.id)
    }

    /// Waits for a message; errors of the page that arrive before it are recorded.
    fn wait_for(&mut self, what: &str, matches: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(message) => {
                    self.record(&message);
                    if matches(&message) {
                        return message;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no answer to {what} in {TIMEOUT:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("{NO_BROWSER}"),
            }
        }
    }

    /// Records an error or a request of the page.
    fn record(&mut self, message: &Value) {
        let params = &message["params"];
        let error = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => &params["exceptionDetails"],
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => &params["entry"],
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                if !url.starts_with("file://") && !url.starts_with("data:") {
                    self.requests.push(url.to_owned());
                }
                return;
            }
            _ => return,
        };
        self.errors.push(error.to_string());
    }

    /// Opens a page at a width, in the light or the dark colour scheme.
    pub fn open(&mut self, page: &str, width: u32, dark: bool) {
        let file = self.dir.path().join("page.html");
        std::fs::write(&file, page).unwrap();
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false }),
        );
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        self.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        self.wait_for("the page to load", |message| message["method"] == "Page.loadEventFired");
    }

    /// Enables or disables the page's own scripts, from the next page on.
    pub fn enable_scripts(&mut self, enabled: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": !enabled }));
    }

    /// Evaluates JavaScript in the page.
    pub fn eval(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer.get("exceptionDetails").is_none(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until the page has handled pending events, such as the closing of a dialog.
    pub fn wait_for_handlers(&mut self) {
        let script = "new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))";
        let params = json!({ "expression": script, "awaitPromise": true });
        self.call("Runtime.evaluate", params);
    }

    /// Presses and releases a key, as a person would.
    pub fn key(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            "Tab" => 9,
            other => panic!("unknown key {other}"),
        };
        let mut event = json!({ "type": "keyDown", "key": key, "code": key,
            "windowsVirtualKeyCode": code });
        if key == "Enter" {
            event["text"] = json!("\r");
        }
        self.call("Input.dispatchKeyEvent", event.clone());
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Whether screenshots were requested.
    pub const fn takes_screenshots(&self) -> bool {
        self.screenshots.is_some()
    }

    /// Saves a picture of the window or of the whole page, if screenshots were requested.
    pub fn screenshot(&mut self, name: &str, whole_page: bool) {
        let Some(dir) = self.screenshots.clone().map(PathBuf::from) else { return };
        let mut params = json!({ "format": "png", "captureBeyondViewport": whole_page });
        if whole_page {
            let size = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
            params["clip"] = json!({ "x": 0, "y": 0, "width": size["width"],
                "height": size["height"], "scale": 1 });
        }
        let answer = self.call("Page.captureScreenshot", params);
        let picture = base64(answer["data"].as_str().unwrap());
        std::fs::write(dir.join(format!("{name}.png")), picture).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let _ = self.send("Browser.close", json!({}));
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Chromium's helper processes exit after it and may still write.
        while std::fs::remove_dir_all(self.dir.path()).is_err()
            && self.dir.path().exists()
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

const NO_BROWSER: &str = "Chromium did not start or exited early. Install it (Debian: apt-get \
    install chromium) so that `chromium` is in the PATH, or set DBDYNO_SKIP_BROWSER=1 to skip \
    this test";

fn base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut buffer, mut bits) = (0_u32, 0);
    for character in text.bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        buffer = buffer << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits) as u8);
        }
    }
    bytes
}
