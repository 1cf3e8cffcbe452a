//! The durations of tests and the CPU time of parts, as `cargo xtask test` prints them at its end.
//!
//! Cargo starts each test binary through this program (`cargo xtask time-tests`), which lets the harness report the duration of
//! every test. The harness hides that option on stable compilers behind a variable, which is set for the binaries only: set for
//! Cargo, it would change the build.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::repository::{Repository, cargo};

/// The file to which durations are appended.
const FILE: &str = "ONWARD_TEST_TIMES";

/// The number of tests that are printed.
const SLOWEST: usize = 10;

/// Returns the file with the durations of this run.
pub fn file(repository: &Repository) -> PathBuf {
    repository.target().join("test-times.tsv")
}

/// Returns Cargo with this program as the runner of test binaries. Not for doc tests: they are programs without a harness.
pub fn timed_cargo(repository: &Repository) -> Result<Command> {
    let mut command = cargo(repository);
    let own = std::env::current_exe().context("this program has no path")?;
    let own = own.to_str().context("the path of this program is not UTF-8")?;
    let output = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let runner = format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_"));
    // Cargo splits the value at spaces.
    if !own.contains(' ') {
        command.env(runner, format!("{own} time-tests")).env(FILE, file(repository));
    }
    Ok(command)
}

/// Runs a test binary and appends the duration of each test to the file of the run.
pub fn run_binary(arguments: &[&str]) -> Result<()> {
    let [program, arguments @ ..] = arguments else { bail!("time-tests needs a program") };
    let mut command = Command::new(program);
    command.args(arguments).args(["-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1").stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let stdout = child.stdout.take().context("its output is a pipe")?;
    let name = binary_name(program);
    let mut lines = String::new();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        if let Some((test, seconds)) = duration(&line) {
            lines += &format!("{seconds}\t{name}\t{test}\n");
        }
    }
    let status = child.wait()?;
    if let Some(path) = std::env::var_os(FILE) {
        append(&path, &lines)?;
    }
    // The code of the harness is that of Cargo.
    std::process::exit(status.code().unwrap_or(101));
}

fn append(path: &OsString, lines: &str) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(file.write_all(lines.as_bytes())?)
}

/// Returns the name of a test binary without the hash that Cargo adds.
fn binary_name(program: &str) -> &str {
    let name = Path::new(program).file_stem().and_then(|name| name.to_str()).unwrap_or(program);
    name.rsplit_once('-').map_or(name, |(name, _)| name)
}

/// Returns the test and its duration in seconds from a line of the harness: `test a::b ... ok <0.123s>`.
fn duration(line: &str) -> Option<(&str, f64)> {
    let (test, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (_, seconds) = rest.rsplit_once('<')?;
    Some((test, seconds.strip_suffix("s>")?.parse().ok()?))
}

/// Returns the slowest tests of a file of durations, slowest first.
pub fn slowest(file: &str) -> Vec<String> {
    let mut tests: Vec<(f64, &str)> = file
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(time, test)| Some((time.parse().ok()?, test)))
        .collect();
    tests.sort_by(|one, other| other.0.total_cmp(&one.0));
    let line = |(seconds, test): &(f64, &str)| format!("{seconds:7.1} s  {}", test.replace('\t', " "));
    tests.iter().take(SLOWEST).map(line).collect()
}

/// Returns the CPU time of all ended child processes and theirs; `None` where the system does not show it.
pub fn cpu_of_children() -> Option<Duration> {
    children_ticks(&std::fs::read_to_string("/proc/self/stat").ok()?).map(|ticks| Duration::from_millis(ticks * 10))
}

/// Returns the sum of `cutime` and `cstime`, in hundredths of a second.
fn children_ticks(stat: &str) -> Option<u64> {
    // The name of the program, in parentheses, may have spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_from_lines_of_the_harness() {
        assert_eq!(duration("test a::b ... ok <0.250s>"), Some(("a::b", 0.25)));
        assert_eq!(duration("test a - should panic ... FAILED <12.500s>"), Some(("a - should panic", 12.5)));
        assert_eq!(duration("test a::b ... ignored"), None);
        assert_eq!(duration("test result: ok. 3 passed; finished in 0.1s"), None);
        assert_eq!(binary_name("/x/target/debug/deps/onward_cli-0123456789abcdef"), "onward_cli");
    }

    #[test]
    fn the_ten_slowest_tests_come_first() {
        let file: String = (0..12).map(|n| format!("{n}.5\tbinary\ttest_{n}\n")).collect();
        let slowest = slowest(&file);
        assert_eq!(slowest.len(), 10);
        assert_eq!(slowest[0], "   11.5 s  binary test_11");
    }

    #[test]
    fn the_cpu_time_of_children_is_that_of_the_kernel() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 150 50 20 0 1 0 9 0";
        assert_eq!(children_ticks(stat), Some(200));
    }
}
