//! Requirements of the tests beyond Rust: a C compiler, for the bundled SQLite and for the disk with injected faults; PostgreSQL
//! and PgBouncer, for the store on it; Node.js, for packages of other languages and the console; Chromium, for the console; Python,
//! for a fuzzer and the packages of model providers.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::repository::{Repository, cargo, run};

/// Checks everything; installs what it may.
pub fn check(repository: &Repository) -> Result<()> {
    for component in ["fmt", "clippy"] {
        let there = answers(cargo(repository).args([component, "--version"]));
        if !there {
            let name = if component == "fmt" { "rustfmt" } else { component };
            bail!("cargo {component} is missing: rustup component add {name}");
        }
    }
    if !answers(Command::new("cc").arg("--version")) {
        install_compiler()?;
    }
    check_postgres()?;
    check_node()?;
    if !answers(Command::new("python3").args(["-m", "venv", "--help"])) {
        bail!(
            "Python 3 with the module venv is needed for the fuzzer over HTTP and the packages of model providers: install python3 and python3-venv"
        );
    }
    println!("rustfmt, clippy, a C compiler, PostgreSQL, PgBouncer, node, npm and python3 are installed");
    Ok(())
}

/// The oldest Node.js with the test runner and `fetch` that the packages under `sdks` need.
const NODE_MAJOR_MIN: u32 = 20;

fn check_node() -> Result<()> {
    let needed =
        || format!("Node.js {NODE_MAJOR_MIN} or later with npm is needed for the tests under `sdks`: https://nodejs.org");
    let output = Command::new("node").arg("--version").output().with_context(needed)?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < NODE_MAJOR_MIN) {
        bail!("node has version {version}; {}", needed());
    }
    if !answers(Command::new("npm").arg("--version")) {
        bail!("npm is missing; {}", needed());
    }
    Ok(())
}

/// Checks for PostgreSQL and a pooler, which the tests of its store start themselves.
pub fn check_postgres() -> Result<()> {
    if !has_postgres() {
        install_postgres()?;
    }
    if !has_pooler() {
        install_pooler()?;
    }
    Ok(())
}

/// Returns the path of Chromium for the tests of the console; installs it if it may.
pub fn browser() -> Result<PathBuf> {
    if let Some(found) = find_browser() {
        return Ok(found);
    }
    let needed = "Chromium is missing, which the tests of the console start for themselves: install the package `chromium`, or set \
                  CHROMIUM to the program";
    install(&["chromium"], needed)?;
    find_browser().context(needed)
}

fn find_browser() -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    let programs = folders.flat_map(|folder| ["chromium", "chromium-browser", "google-chrome"].map(|name| folder.join(name)));
    named.into_iter().chain(programs).find(|program| program.is_file())
}

fn install_compiler() -> Result<()> {
    install(&["gcc", "libc6-dev"], "a C compiler named `cc` is missing: install gcc or clang with the headers of the C library")
}

fn install_postgres() -> Result<()> {
    install(
        &["postgresql"],
        "PostgreSQL is missing, which the tests of its store start for themselves: install the package `postgresql`, or set PG_BIN to \
         the folder that has initdb, postgres and psql",
    )
}

fn install_pooler() -> Result<()> {
    install(
        &["pgbouncer"],
        "PgBouncer is missing, which the tests of the PostgreSQL store start for themselves: install the package `pgbouncer`, or set \
         PGBOUNCER to the program",
    )
}

/// Installs system packages if there is apt-get and this is root; fails with `needed` otherwise.
fn install(packages: &[&str], needed: &'static str) -> Result<()> {
    if !is_root() || !answers(Command::new("apt-get").arg("--version")) {
        bail!(needed);
    }
    let apt = |arguments: &[&str]| run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(arguments));
    apt(&["update", "-q"]).and_then(|()| apt(&[&["install", "-q", "-y"], packages].concat())).context(needed)
}

/// Returns whether PostgreSQL is where the tests look for it: PG_BIN, the path, Debian's folders.
fn has_postgres() -> bool {
    let named = std::env::var_os("PG_BIN").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let mut folders = named.into_iter().chain(std::env::split_paths(&path)).chain(debian);
    folders.any(|folder| ["initdb", "postgres", "psql"].iter().all(|program| folder.join(program).is_file()))
}

/// Returns whether PgBouncer is where the tests look for it: PGBOUNCER, the path, Debian's folder.
fn has_pooler() -> bool {
    let named = std::env::var_os("PGBOUNCER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    named.into_iter().chain(folders.map(|folder| folder.join("pgbouncer"))).any(|program| program.is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn answers(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
