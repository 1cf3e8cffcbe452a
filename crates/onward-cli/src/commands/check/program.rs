//! Runs the program that is checked, reads its verdicts, and ends it when they are complete.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use onward::check::{FOLDER, RUNS, RunToCheck, VERDICTS, Verdict};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use crate::output::{Progress, print_stderr};

/// Polling interval of the verdicts, and time for the program to exit after the last one.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const GRACE: Duration = Duration::from_secs(2);

/// Length of the shown end of a failed program's output.
const OUTPUT_BYTES: i64 = 2_000;

pub async fn check(program: &str, arguments: &[String], folder: &Path, count: u64, limit: Duration) -> Result<Vec<Verdict>> {
    let output = folder.join("output.txt");
    let file = File::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
    let mut child = Command::new(program)
        .args(arguments)
        .env(FOLDER, folder)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let deadline = Instant::now() + limit;
    let mut progress = Progress::new("runs checked", false);
    let verdicts = folder.join(VERDICTS);
    loop {
        let found = read(&verdicts)?;
        progress.at(found.len() as u64);
        if found.len() as u64 == count {
            drop(timeout(GRACE, child.wait()).await); // after the timeout it is killed on drop
            return Ok(found);
        }
        if let Ok(status) = timeout(POLL_INTERVAL, child.wait()).await {
            let found = read(&verdicts)?; // verdicts written just before the exit
            return if found.len() as u64 == count { Ok(found) } else { Err(ended(&status?, &found, folder)) };
        }
        if Instant::now() > deadline {
            drop(child.kill().await); // it may have exited just now
            let done = found.len();
            bail!("{program} timed out after {} s; {done} of {count} runs were checked", limit.as_secs());
        }
    }
}

/// Reads the verdicts so far. Ignores an incomplete last line.
fn read(path: &Path) -> Result<Vec<Verdict>> {
    let Ok(file) = File::open(path) else { return Ok(Vec::new()) };
    let mut verdicts = Vec::new();
    let mut file = BufReader::new(file);
    let mut line = String::new();
    while file.read_line(&mut line)? > 0 && line.ends_with('\n') {
        verdicts.push(serde_json::from_str(&line).with_context(|| format!("{}: invalid verdict: {line}", path.display()))?);
        line.clear();
    }
    Ok(verdicts)
}

/// Prints the end of the program's output and returns an error that explains the missing verdicts.
fn ended(status: &std::process::ExitStatus, found: &[Verdict], folder: &Path) -> anyhow::Error {
    if let Ok(output) = last_output(&folder.join("output.txt")) {
        output.lines().for_each(|line| print_stderr(&format!("| {line}")));
    }
    // The program creates the file when it starts to check.
    match unjudged(folder, found.len()).filter(|_| folder.join(VERDICTS).exists()) {
        Some(run) => anyhow!(
            "the program ended with {status} while replaying run {} of kind {}, after {} other runs",
            run.run.id,
            run.kind,
            found.len()
        ),
        None => anyhow!(
            "the program ended with {status} before it checked a run: it must call `.start()` of a builder of this version"
        ),
    }
}

fn unjudged(folder: &Path, judged: usize) -> Option<RunToCheck> {
    let line = BufReader::new(File::open(folder.join(RUNS)).ok()?).lines().nth(judged)?.ok()?;
    serde_json::from_str(&line).ok()
}

fn last_output(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().cast_signed().saturating_sub(OUTPUT_BYTES).max(0);
    file.seek(SeekFrom::Start(from.unsigned_abs()))?;
    let mut output = Vec::new();
    file.read_to_end(&mut output)?;
    Ok(String::from_utf8_lossy(&output).trim().to_owned())
}
