//! Starts a temporary PostgreSQL with an empty database, for programs of other languages, until this process ends. The first line
//! of its output is the address of the database, as JSON.

#![forbid(unsafe_code)]

use onward_testkit::{Cluster, Settings};

fn main() -> std::io::Result<()> {
    let cluster = Cluster::start(Settings::default())?;
    let database = cluster.database(None)?;
    println!("{{\"url\": \"{}\"}}", database.url());
    loop {
        std::thread::park();
    }
}
