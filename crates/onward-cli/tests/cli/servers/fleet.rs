//! The processes of a deployment: servers that share a database, and their workers. Each can be killed, stopped and continued,
//! and is restarted when it has exited, like by a supervisor.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onward_testkit::WrongClock;

use crate::kit::onward;
use crate::torture::{TortureWorker, Work};

/// Delay before a restart: a server does not start while its database is down.
const PAUSE: Duration = Duration::from_millis(200);

/// Lease duration of every server.
pub const LEASE: Duration = Duration::from_secs(2);

/// Clock offsets of the servers in seconds.
const CLOCKS: [i64; 3] = [0, 3_600, -3_600];

pub struct Fleet {
    pub servers: Vec<Process>,
    pub workers: Vec<Process>,
    /// Kept as long as processes may be started with it.
    _clock: WrongClock,
}

impl Fleet {
    /// Starts servers on the database at `url`, each with a worker.
    pub fn start(count: usize, url: &str, directory: &Path) -> Fleet {
        let clock = WrongClock::build().unwrap();
        let (mut servers, mut workers) = (Vec::new(), Vec::new());
        for number in 0..count {
            let port = free_port();
            let mut server = onward();
            server.args(["server", "--json", "--listen", &format!("127.0.0.1:{port}")]).env("ONWARD_SERVER__STORE", url);
            server.env("ONWARD_SERVER__LEASE", format!("{}s", LEASE.as_secs())).env("ONWARD_LOG__LEVEL", "warn");
            clock.set(&mut server, CLOCKS[number % CLOCKS.len()]);
            servers.push(Process::new(format!("server-{number}"), server, directory));
            let worker = TortureWorker::new(Work::Server(format!("http://127.0.0.1:{port}")), directory.join("side"));
            workers.push(Process::new(format!("worker-{number}"), worker.command(), directory));
        }
        Fleet { servers, workers, _clock: clock }
    }

    pub fn urls(&self) -> Vec<String> {
        let address = |server: &Process| server.command.get_args().last().unwrap().to_str().unwrap().to_owned();
        self.servers.iter().map(|server| format!("http://{}", address(server))).collect()
    }

    /// Returns a process by index: servers first, then workers.
    pub fn get(&mut self, index: usize) -> &mut Process {
        let count = self.servers.len();
        if index < count { &mut self.servers[index] } else { &mut self.workers[index - count] }
    }

    pub fn len(&self) -> usize {
        self.servers.len() + self.workers.len()
    }

    /// Restarts processes that have exited and continues stopped ones when due.
    pub fn tend(&mut self) {
        self.servers.iter_mut().chain(&mut self.workers).for_each(Process::tend);
    }

    /// Starts and continues all processes.
    pub fn heal(&mut self) {
        for process in self.servers.iter_mut().chain(&mut self.workers) {
            process.go_on();
            process.down_until = Instant::now();
            process.tend();
        }
    }
}

pub struct Process {
    pub name: String,
    command: Command,
    stdout: PathBuf,
    child: Option<Child>,
    down_until: Instant,
    stopped_until: Option<Instant>,
}

impl Process {
    fn new(name: String, mut command: Command, directory: &Path) -> Process {
        let log = OpenOptions::new().create(true).append(true).open(directory.join(&name).with_extension("log")).unwrap();
        command.stdin(Stdio::piped()).stderr(log);
        let stdout = directory.join(&name).with_extension("stdout");
        let mut process = Process { name, command, stdout, child: None, down_until: Instant::now(), stopped_until: None };
        process.tend();
        process
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some() && self.stopped_until.is_none()
    }

    pub fn kill(&mut self, down: Duration) {
        let Some(mut child) = self.child.take() else { return };
        child.kill().unwrap();
        child.wait().unwrap();
        self.stopped_until = None;
        self.down_until = Instant::now() + down;
    }

    pub fn stop(&mut self, span: Duration) {
        self.signal("-STOP");
        self.stopped_until = Some(Instant::now() + span);
    }

    fn go_on(&mut self) {
        if self.stopped_until.take().is_some() {
            self.signal("-CONT");
        }
    }

    fn signal(&self, signal: &str) {
        let Some(child) = &self.child else { return };
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    }

    fn tend(&mut self) {
        if self.stopped_until.is_some_and(|until| until <= Instant::now()) {
            self.go_on();
        }
        if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().unwrap()) {
            // A start may fail while the database or the server is down; a server that was ready must not exit by itself.
            let was_ready = self.name.starts_with("server") && std::fs::metadata(&self.stdout).unwrap().len() > 0;
            assert!(!was_ready, "{} ended by itself: {status}", self.name);
            self.child = None;
            self.down_until = Instant::now() + PAUSE;
        }
        if self.child.is_none() && self.down_until <= Instant::now() {
            self.command.stdout(File::create(&self.stdout).unwrap());
            self.child = Some(self.command.spawn().unwrap());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill(Duration::ZERO);
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
