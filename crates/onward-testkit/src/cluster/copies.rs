//! Copies of a cluster's files, dumps, and standbys.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::user::User;
use super::{Cluster, OWNER, Settings, as_user, configuration, free_port, make_directory, watch};

/// Signal for a shutdown that does not wait for clients.
const FAST: i32 = 2;

/// A copy of the files of a cluster; removed with the cluster.
pub struct Copy(PathBuf);

impl Cluster {
    /// Stops the server, copies its files and starts it again.
    pub fn copy_files(&mut self) -> io::Result<Copy> {
        let copy = self.directory.join("copy");
        self.stop(FAST)?;
        run(Command::new("cp").arg("-a").arg(self.directory.join("data")).arg(&copy))?;
        self.go_on()?;
        Ok(Copy(copy))
    }

    /// Stops the server and starts it again with the copied files.
    pub fn put_back(&mut self, copy: &Copy) -> io::Result<()> {
        self.stop(FAST)?;
        let data = self.directory.join("data");
        std::fs::remove_dir_all(&data)?;
        run(Command::new("cp").arg("-a").arg(&copy.0).arg(&data))?;
        self.go_on()
    }

    /// Dumps a database with `pg_dump`.
    pub fn dump(&self, database: &str) -> io::Result<Vec<u8>> {
        let mut dump = Command::new(self.programs.join("pg_dump"));
        dump.args(["-U", OWNER, "-h"]).arg(&self.directory).arg("-p").arg(self.port.to_string()).arg(database);
        let output = dump.stdin(Stdio::null()).output()?;
        if output.status.success() { Ok(output.stdout) } else { Err(io::Error::other(String::from_utf8_lossy(&output.stderr))) }
    }

    /// Replaces the schema `schema` of a database by a dump, in one transaction.
    pub fn load(&self, database: &str, schema: &str, dump: &[u8]) -> io::Result<()> {
        let file = self.directory.join("dump.sql");
        std::fs::write(&file, [format!("DROP SCHEMA IF EXISTS {schema} CASCADE;\n").as_bytes(), dump].concat())?;
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "--single-transaction", "-U", OWNER, "-d", database]);
        run(psql.arg("-h").arg(&self.directory).arg("-p").arg(self.port.to_string()).arg("-f").arg(&file))
    }

    /// Starts a standby of this cluster.
    pub fn standby(&self, settings: Settings) -> io::Result<Cluster> {
        let user = User::unprivileged()?;
        let directory = make_directory(user.as_ref())?;
        let mut backup = Command::new(self.programs.join("pg_basebackup"));
        backup.arg("-D").arg(directory.join("data")).args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-U", OWNER]);
        backup.arg("-h").arg(&self.directory).arg("-p").arg(self.port.to_string());
        run(as_user(&mut backup, user.as_ref()).current_dir("/"))?;
        let port = free_port()?;
        let conf = directory.join("data/postgresql.conf");
        let mut file = std::fs::OpenOptions::new().append(true).open(conf)?;
        file.write_all(configuration(&directory, port, &settings).as_bytes())?;
        let watcher = watch(&self.programs, &directory, user.as_ref())?;
        Cluster::watched(self.programs.clone(), directory, port, settings, watcher)
    }

    /// Promotes a standby.
    pub fn promote(&self) -> io::Result<()> {
        self.psql("postgres", "SELECT pg_promote()").map(drop)
    }
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr))))
}
