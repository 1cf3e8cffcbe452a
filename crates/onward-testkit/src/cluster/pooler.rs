//! A PgBouncer in transaction mode in front of a cluster.

use std::io;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::user::User;
use super::{Cluster, OWNER, as_user, free_port, make_directory};

/// Error text if it is missing.
const NEEDED: &str = "PgBouncer is needed for this test: install it with `apt-get install pgbouncer` or your system's package of that \
     name, or set PGBOUNCER to the program";

/// Runs the pooler until standard input ends, so that it ends with this process in whatever way.
const WATCH: &str = r#"trap '' INT TERM HUP
"$1" "$2/pgbouncer.ini" >"$2/log" 2>&1 & pooler=$!
read -r _
kill -KILL "$pooler"; wait "$pooler"; rm -rf "$2""#;

/// A pooler that may give each transaction another connection; ends on drop.
pub struct Pooler {
    pub port: u16,
    watcher: Child,
}

impl Pooler {
    pub fn start(cluster: &Cluster) -> io::Result<Pooler> {
        let program = find().ok_or_else(|| io::Error::other(NEEDED))?;
        let user = User::unprivileged()?;
        let (directory, port) = (make_directory(user.as_ref())?, free_port()?);
        let settings = [
            "[databases]".to_owned(),
            format!("* = host=127.0.0.1 port={} user={OWNER}", cluster.port()),
            "[pgbouncer]".to_owned(),
            format!("listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir ="),
            "auth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200".to_owned(),
            format!("admin_users = {OWNER}\npidfile = {}/pid", directory.display()),
        ];
        std::fs::write(directory.join("pgbouncer.ini"), settings.join("\n") + "\n")?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", WATCH, "onward-pg-pooler"]).arg(program).arg(&directory);
        let watcher = as_user(&mut shell, user.as_ref())
            .process_group(0)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()?;
        let pooler = Pooler { port, watcher };
        let until = Instant::now() + super::START_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > until {
                let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("pgbouncer did not start: {log}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(pooler)
    }

    /// Returns the URL of a database of the cluster through the pooler.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{OWNER}@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// Finds PgBouncer: `PGBOUNCER`, then the path, then Debian's folders.
fn find() -> Option<PathBuf> {
    let named = std::env::var_os("PGBOUNCER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    named.into_iter().chain(folders.map(|folder| folder.join("pgbouncer"))).find(|program| program.is_file())
}
