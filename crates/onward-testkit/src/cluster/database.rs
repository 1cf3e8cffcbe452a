//! One database per test, copied from a template.

use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use super::{Cluster, OWNER};

/// A database that is dropped with this value.
pub struct Database<'c> {
    cluster: &'c Cluster,
    name: String,
}

impl Cluster {
    /// Creates an empty database, or a copy of `template`, which must have no connections.
    pub fn database(&self, template: Option<&str>) -> io::Result<Database<'_>> {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        self.psql("postgres", &format!("CREATE DATABASE {name} TEMPLATE {}", template.unwrap_or("template0")))?;
        Ok(Database { cluster: self, name })
    }

    /// Runs SQL as the owner of the cluster and returns the rows, one per line, with columns separated by `|`.
    pub fn psql(&self, database: &str, sql: &str) -> io::Result<String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", OWNER, "-d", database, "-c", sql]);
        psql.arg("-h").arg(&self.directory).arg("-p").arg(self.port.to_string());
        let output = psql.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("{sql}: {}", String::from_utf8_lossy(&output.stderr))));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }
}

impl Database<'_> {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    pub fn socket_url(&self) -> String {
        self.cluster.socket_url(&self.name)
    }

    pub fn psql(&self, sql: &str) -> io::Result<String> {
        self.cluster.psql(&self.name, sql)
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // Fails if the cluster is already gone, and the database with it.
        let _ = self.cluster.psql("postgres", &format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}
