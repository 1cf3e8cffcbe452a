//! A temporary PostgreSQL cluster: one per process, with one database per test, removed with the process.
//!
//! Finds `initdb` and `postgres`, runs them as an unprivileged user (PostgreSQL refuses root), and cleans up. The cluster belongs
//! to a watcher, a small shell that waits for the end of a pipe: when this process ends, in whatever way, the pipe closes, and
//! the watcher stops the server and removes its files. Must never touch a cluster that it did not create, and never skip a test:
//! without PostgreSQL, starting a cluster fails with an installation hint.

mod copies;
mod database;
mod find;
mod pooler;
mod user;

use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use copies::Copy;
pub use database::Database;
pub use find::{NEEDED, find_programs};
pub use pooler::Pooler;
use user::User;

/// Settings of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// No commit waits for the disk: for tests of logic alone, whose data need not survive a crash of the machine.
    pub is_forgetful: bool,
    /// Further lines of `postgresql.conf`.
    pub more: Vec<String>,
    /// Further files in the data folder, readable by the server only: name and text.
    pub files: Vec<(String, String)>,
}

/// A PostgreSQL server that ends with this process.
pub struct Cluster {
    programs: PathBuf,
    directory: PathBuf,
    port: u16,
    settings: Settings,
    /// Its standard input is the pipe that closes when this process ends.
    watcher: Child,
    databases: AtomicU32,
}

/// Name of the cluster's owner.
pub const OWNER: &str = "onward";

/// Maximum start time of a server on a busy machine.
const START_MAX: Duration = Duration::from_secs(300);

/// Runs the server `$1 -D $2`, again for each line of input, until standard input ends; then stops it at once and removes
/// everything.
const WATCH: &str = r#"trap '' INT TERM HUP
start() { "$1" -D "$2/data" >"$2/log" 2>&1 & server=$!; }
start "$1" "$2"
while read -r _; do wait "$server"; rm -f "$2/data/postmaster.pid" "$2"/.s.*.lock; start "$1" "$2"; done
kill -QUIT "$server" 2>/dev/null; wait "$server"; rm -rf "$2""#;

impl Cluster {
    /// Returns the shared cluster of this process for tests of logic.
    ///
    /// # Panics
    /// Panics if PostgreSQL is missing or does not start: no test is skipped.
    pub fn shared() -> &'static Cluster {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            let settings = Settings { is_forgetful: true, ..Settings::default() };
            Cluster::start(settings).unwrap_or_else(|error| panic!("{error}"))
        })
    }

    /// Creates and starts a cluster.
    pub fn start(settings: Settings) -> io::Result<Cluster> {
        let programs = find_programs().ok_or_else(|| io::Error::other(NEEDED))?;
        let user = User::unprivileged()?;
        let directory = make_directory(user.as_ref())?;
        let port = free_port()?;
        let watcher = Cluster::make(&programs, &directory, port, user.as_ref(), &settings);
        let watcher = watcher.inspect_err(|_| drop(std::fs::remove_dir_all(&directory)))?;
        Cluster::watched(programs, directory, port, settings, watcher)
    }

    fn watched(programs: PathBuf, directory: PathBuf, port: u16, settings: Settings, watcher: Child) -> io::Result<Cluster> {
        let mut cluster = Cluster { programs, directory, port, settings, watcher, databases: AtomicU32::new(0) };
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    fn make(programs: &Path, directory: &Path, port: u16, user: Option<&User>, settings: &Settings) -> io::Result<Child> {
        let data = directory.join("data");
        let mut initdb = Command::new(programs.join("initdb"));
        initdb.arg("-D").arg(&data).args(["-U", OWNER, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]);
        let made = as_user(&mut initdb, user).stdin(Stdio::null()).current_dir("/").output()?;
        if !made.status.success() {
            return Err(io::Error::other(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr))));
        }
        let conf = data.join("postgresql.conf");
        let mut text = std::fs::read_to_string(&conf)?;
        text.push_str(&configuration(directory, port, settings));
        std::fs::write(&conf, text)?;
        for (name, text) in &settings.files {
            put_secret(&data.join(name), text, user)?;
        }
        watch(programs, directory, user)
    }

    /// Waits until the lock file of the server reports that it is ready.
    fn wait_until_ready(&mut self) -> io::Result<()> {
        let until = Instant::now() + START_MAX;
        loop {
            let state = std::fs::read_to_string(self.directory.join("data/postmaster.pid")).unwrap_or_default();
            if state.lines().nth(7).is_some_and(|line| ["ready", "standby"].contains(&line.trim())) {
                return Ok(());
            }
            let log = || std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            if log().trim_end().ends_with("database system is shut down") || Instant::now() > until {
                let log = log();
                return Err(io::Error::other(format!("postgres did not start: {log}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the URL of a database of the cluster.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{OWNER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the connection settings for its Unix socket, which is faster.
    pub fn socket_url(&self, database: &str) -> String {
        format!("host={} port={} user={OWNER} dbname={database}", self.directory.display(), self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the process id of the server.
    pub fn server_pid(&self) -> io::Result<i32> {
        let state = std::fs::read_to_string(self.directory.join("data/postmaster.pid"))?;
        state.lines().next().and_then(|line| line.trim().parse().ok()).ok_or_else(|| io::Error::other("the server is down"))
    }

    /// Ends the server by `signal` (SIGTERM waits for clients, SIGINT does not, SIGQUIT and SIGKILL crash it) and starts it
    /// again.
    pub fn restart(&mut self, signal: i32) -> io::Result<()> {
        self.stop(signal)?;
        self.go_on()
    }

    /// Ends the server by `signal`, until [`Cluster::go_on`]; its files stay.
    pub fn stop(&mut self, signal: i32) -> io::Result<()> {
        let pid = self.server_pid()?;
        // SAFETY: kill takes two numbers, and the process is the one our watcher started.
        unsafe { libc::kill(pid, signal) };
        let until = Instant::now() + START_MAX;
        while is_running(pid) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Starts a stopped server.
    pub fn go_on(&mut self) -> io::Result<()> {
        let until = Instant::now() + START_MAX;
        loop {
            // Removes the output of the previous server, so that it is not taken for that of the next.
            for old in ["data/postmaster.pid", "log"] {
                let _ = std::fs::remove_file(self.directory.join(old));
            }
            self.watcher.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(b"\n")?;
            match self.wait_until_ready() {
                // The children of a killed server take a moment to end.
                Err(_) if Instant::now() < until => {}
                other => return other,
            }
        }
    }

    /// Suspends all processes of the server until the returned value is dropped: connections are accepted but get no reply.
    pub fn freeze(&self) -> io::Result<Frozen> {
        let server = self.server_pid()?;
        let mut frozen = Frozen(Vec::new());
        // The postmaster goes first, since it forks the others.
        frozen.stop(server);
        for process in std::fs::read_dir("/proc")?.flatten() {
            let pid = process.file_name().to_string_lossy().parse().ok();
            if let Some(pid) = pid.filter(|pid| parent_of(*pid) == Some(server)) {
                frozen.stop(pid);
            }
        }
        Ok(frozen)
    }

    /// Returns the log of the server since its start.
    pub fn log(&self) -> io::Result<String> {
        std::fs::read_to_string(self.directory.join("log"))
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// Suspended processes, which resume on drop.
pub struct Frozen(Vec<i32>);

impl Frozen {
    fn stop(&mut self, pid: i32) {
        // SAFETY: kill takes two numbers, and the process is the one our watcher started, or a child of it.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        self.0.push(pid);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            // SAFETY: as above; a suspended process still exists.
            unsafe { libc::kill(*pid, libc::SIGCONT) };
        }
    }
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Returns whether a process is running, not a zombie.
fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

fn configuration(directory: &Path, port: u16, settings: &Settings) -> String {
    let mut lines = vec![
        format!("port = {port}"),
        "listen_addresses = '127.0.0.1'".to_owned(),
        format!("unix_socket_directories = '{}'", directory.display()),
        "max_connections = 300".to_owned(),
    ];
    if settings.is_forgetful {
        lines.extend(["fsync = off", "synchronous_commit = off", "full_page_writes = off"].map(str::to_owned));
    }
    lines.extend(settings.more.iter().cloned());
    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}

fn watch(programs: &Path, directory: &Path, user: Option<&User>) -> io::Result<Child> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", WATCH, "onward-pg-watcher"]).arg(programs.join("postgres")).arg(directory);
    // A process group of its own: signals from the terminal do not reach it.
    as_user(&mut shell, user).process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).current_dir("/").spawn()
}

fn as_user<'c>(command: &'c mut Command, user: Option<&User>) -> &'c mut Command {
    match user {
        Some(user) => command.uid(user.uid).gid(user.gid),
        None => command,
    }
}

pub(crate) fn make_directory(user: Option<&User>) -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    // Short, since the path of a socket is limited to about a hundred bytes.
    let directory = std::env::temp_dir().join(format!("onward-pg-{}-{number}", std::process::id()));
    std::fs::create_dir(&directory)?;
    if let Some(user) = user {
        std::os::unix::fs::chown(&directory, Some(user.uid), Some(user.gid))?;
    }
    Ok(directory)
}

fn put_secret(path: &Path, text: &str, user: Option<&User>) -> io::Result<()> {
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())?;
    match user {
        Some(user) => std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)),
        None => Ok(()),
    }
}

fn free_port() -> io::Result<u16> {
    TcpListener::bind("127.0.0.1:0")?.local_addr().map(|address| address.port())
}
