//! A headless Chromium, driven over the WebDriver protocol (W3C) by Chromium's own driver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::success;

/// Returns from the calling test, counted as skipped, if no browser is installed.
macro_rules! browser {
    () => {
        match crate::browser::Browser::start() {
            Ok(browser) => browser,
            Err(why) => {
                crate::common::skip(&why);
                return;
            }
        }
    };
}

/// Path of the measured results, reduced to a few rows each.
pub(crate) const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/results");

/// Writes a page of these result files.
pub(crate) fn page(folder: &Path, files: impl IntoIterator<Item = String>) -> PathBuf {
    let page = folder.join("page.html");
    let mut arguments = vec!["report".into(), "-o".into(), page.display().to_string()];
    arguments.extend(files);
    success(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    page
}

/// A browser with one window.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// Profile folder.
    _folder: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser. `Err` names what is not installed.
    pub(crate) fn start() -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("chromedriver: {error}: apt install chromium-driver"))?;
        let port = port(&mut driver);
        let mut browser = Self { driver, port, session: String::new(), _folder: folder };
        let profile = format!("--user-data-dir={}", browser._folder.path().display());
        // Chromium's own sandbox refuses to run as root; the pages are our own.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--window-size=1300,900",
            &profile,
        ];
        let options = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let session = browser.request("POST", "/session", &options)?;
        session["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        // Leave the page of a new window, which makes many requests, and complains if there is no
        // network.
        browser.post("url", &json!({"url": "about:blank"}));
        browser.requests();
        browser.console();
        Ok(browser)
    }

    /// Opens a file in the browser.
    pub(crate) fn open(&self, file: &Path) {
        self.post("url", &json!({"url": format!("file://{}", file.display())}));
    }

    /// Runs `script` as the body of a function in the page, and returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs `script` and returns its result, which has to be a number.
    pub(crate) fn number(&self, script: &str) -> f64 {
        let value = self.run(script);
        value.as_f64().unwrap_or_else(|| panic!("{script}: {value}"))
    }

    /// Runs `script` and returns its result, which has to be text.
    pub(crate) fn text(&self, script: &str) -> String {
        let value = self.run(script);
        value.as_str().unwrap_or_else(|| panic!("{script}: {value}")).to_owned()
    }

    /// Moves the mouse to the middle of the first element that matches `selector`.
    pub(crate) fn point_at(&self, selector: &str) {
        let at = self.run(&format!(
            "const it = document.querySelector({selector:?}); it.scrollIntoView({{block: 'center'}});
             const at = it.getBoundingClientRect();
             return [Math.round(at.left + at.width / 2), Math.round(at.top + at.height / 2)];"
        ));
        // Scrolling moves the element away from the pointer; its event comes with the next frame of
        // the page.
        self.post(
            "execute/async",
            &json!({"script": "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))", "args": []}),
        );
        let step = json!({"type": "pointerMove", "duration": 0, "x": at[0], "y": at[1]});
        self.act(&json!({"type": "pointer", "id": "mouse", "actions": [step]}));
    }

    /// Presses a key, given as a character or one of WebDriver's code points.
    pub(crate) fn press(&self, key: &str) {
        let steps = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        self.act(&json!({"type": "key", "id": "keys", "actions": steps}));
    }

    /// Runs a command of the DevTools protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post("goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Returns the console messages and all errors since the last call.
    pub(crate) fn console(&self) -> Vec<String> {
        self.log("browser").iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// Returns the addresses requested since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        let entries = self.log("performance");
        let events = entries.iter().map(|entry| -> Value {
            serde_json::from_str(entry["message"].as_str().expect("text")).expect("JSON")
        });
        let events =
            events.filter(|event| event["message"]["method"] == "Network.requestWillBeSent");
        let url = |event: Value| event["message"]["params"]["request"]["url"].to_string();
        events.map(url).collect()
    }

    /// Checks that the console is empty, and that the browser requested nothing but `page`.
    pub(crate) fn assert_quiet(&self, page: &Path) {
        assert_eq!(self.console(), [""; 0]);
        let own = format!("\"file://{}\"", page.display());
        let is_other = |url: &String| *url != own && !url.starts_with("\"data:,");
        let others: Vec<String> = self.requests().into_iter().filter(is_other).collect();
        assert!(others.is_empty(), "{others:?}");
    }

    fn act(&self, source: &Value) {
        self.post("actions", &json!({"actions": [source]}));
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        self.post("se/log", &json!({"type": kind})).as_array().expect("entries").clone()
    }

    fn post(&self, command: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{command}", self.session);
        self.request("POST", &path, body)
            .unwrap_or_else(|error| panic!("{command} {body}: {error}"))
    }

    /// Sends one HTTP request.
    fn request(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a time");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).map_err(|error| error.to_string())?;
        let (head, body) = answer(stream).map_err(|error| error.to_string())?;
        let value: Value =
            serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        if head.starts_with("HTTP/1.1 200") {
            Ok(value["value"].clone())
        } else {
            Err(value["value"]["message"].to_string())
        }
    }
}

/// Reads the head and the body of a reply. The driver need not close the connection after it.
fn answer(stream: TcpStream) -> std::io::Result<(String, String)> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head)? > 0 {}
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    Ok((head, String::from_utf8_lossy(&body).into_owned()))
}

/// Returns the port that the driver has chosen.
fn port(driver: &mut Child) -> u16 {
    let mut output = BufReader::new(driver.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while output.read_line(&mut line).expect("output") > 0 {
        if let Some((_, port)) = line.trim().rsplit_once("on port ")
            && line.contains("successfully")
        {
            return port.trim_end_matches('.').parse().expect("a port");
        }
        line.clear();
    }
    panic!("chromedriver did not start");
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium, which would outlive its driver.
        let _ = self.request("DELETE", &format!("/session/{}", self.session), &json!({}));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
