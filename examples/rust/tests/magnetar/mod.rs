//! A broker in a process of its own, which ends with the test: it reads its standard input until the end.
//!
//! Each test starts one, since cargo runs tests side by side, and clock and faults are those of the whole broker.

use std::{
    env, fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{json, Value};

const READY_WITHIN: Duration = Duration::from_secs(60);

pub struct Magnetar {
    pub pulsar: String,
    admin: String,
    process: Child,
}

impl Drop for Magnetar {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        self.process.wait().expect("the broker can be waited for");
    }
}

impl Magnetar {
    /// Starts the command that the environment variable MAGNETAR names, by default `magnetar`, and waits until clients can
    /// connect.
    pub fn start() -> Magnetar {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready.json");
        let command = env::var("MAGNETAR").unwrap_or_else(|_| "magnetar".into());
        let log = folder.path().join("broker.log");
        let output = fs::File::create(&log).unwrap();
        let mut process = Command::new(&command)
            .args(["standalone", "--memory", "--test-faults", "--until-eof"])
            .args(["--set", "brokerServicePort=0", "--set", "webServicePort=0"])
            .arg("--ready-file")
            .arg(&ready)
            .stdin(Stdio::piped())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap_or_else(|error| panic!("{command}: {error}"));
        let deadline = Instant::now() + READY_WITHIN;
        while !ready.exists() {
            let ended = process.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "the broker ended:\n{}",
                fs::read_to_string(&log).unwrap()
            );
            assert!(Instant::now() < deadline, "the broker was not ready within a minute");
            thread::sleep(Duration::from_millis(5));
        }
        let addresses: Value = serde_json::from_slice(&fs::read(&ready).unwrap()).unwrap();
        let address = |name: &str| addresses[name].as_str().unwrap().to_owned();
        Magnetar {
            pulsar: address("pulsar"),
            admin: address("admin"),
            process,
        }
    }

    /// Moves the clock ahead, and returns when everything has happened that fell due.
    pub fn advance(&self, length: Duration) {
        self.post(
            "/magnetar/test/clock",
            &json!({"advance_ms": length.as_millis() as u64}),
        );
    }

    /// Sets a fault, such as `{"on": "ACK", "do": "drop"}`, and returns its id.
    pub fn fault(&self, fault: &Value) -> u64 {
        self.post("/magnetar/test/faults", fault)["id"].as_u64().unwrap()
    }

    /// Removes a fault, and returns how often it has happened.
    pub fn fired(&self, fault: u64) -> u64 {
        let path = format!("{}/magnetar/test/faults/{fault}", self.admin);
        let removed: Value = ureq::delete(&path).call().unwrap().body_mut().read_json().unwrap();
        removed["fired"].as_u64().unwrap()
    }

    pub fn get(&self, path: &str) -> Value {
        ureq::get(format!("{}{path}", self.admin))
            .call()
            .unwrap()
            .body_mut()
            .read_json()
            .unwrap()
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        let mut answer = ureq::post(format!("{}{path}", self.admin)).send_json(body).unwrap();
        answer.body_mut().read_json().unwrap_or(Value::Null)
    }
}
