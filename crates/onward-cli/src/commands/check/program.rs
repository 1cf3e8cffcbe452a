//! The program that is checked: started, watched, and ended when it has said everything.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use onward::check::{FOLDER, RUNS, RunToCheck, VERDICTS, Verdict};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use crate::output::{Progress, say};

/// How often the verdicts are counted, and how long a program may go on that has nothing more to say.
const LOOK: Duration = Duration::from_millis(50);
const GRACE: Duration = Duration::from_secs(2);

/// Of what a program said before it failed, so much is shown.
const SAID_BYTES: i64 = 2_000;

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
            drop(timeout(GRACE, child.wait()).await); // one that goes on for longer is killed
            return Ok(found);
        }
        if let Ok(status) = timeout(LOOK, child.wait()).await {
            let found = read(&verdicts)?; // what it wrote last
            return if found.len() as u64 == count { Ok(found) } else { Err(ended(&status?, &found, folder)) };
        }
        if Instant::now() > deadline {
            stop(&mut child).await;
            let done = found.len();
            bail!("{program} took longer than {} s; it has checked {done} of {count} runs", limit.as_secs());
        }
    }
}

async fn stop(child: &mut Child) {
    drop(child.kill().await); // it may have ended in this moment
}

/// The verdicts so far. The last line may be on its way.
fn read(path: &Path) -> Result<Vec<Verdict>> {
    let Ok(file) = File::open(path) else { return Ok(Vec::new()) };
    let mut verdicts = Vec::new();
    let mut file = BufReader::new(file);
    let mut line = String::new();
    while file.read_line(&mut line)? > 0 && line.ends_with('\n') {
        verdicts.push(serde_json::from_str(&line).with_context(|| format!("{} has no verdict: {line}", path.display()))?);
        line.clear();
    }
    Ok(verdicts)
}

/// Why there are fewer verdicts than runs. What the program said is shown before.
fn ended(status: &std::process::ExitStatus, found: &[Verdict], folder: &Path) -> anyhow::Error {
    if let Ok(said) = last_said(&folder.join("output.txt")) {
        said.lines().for_each(|line| say(&format!("| {line}")));
    }
    // The file is made when the program begins to check.
    match unjudged(folder, found.len()).filter(|_| folder.join(VERDICTS).exists()) {
        Some(run) => anyhow!(
            "the program ended with {status} while it replayed run {} of kind {}, after {} others",
            run.run.id,
            run.kind,
            found.len()
        ),
        None => anyhow!(
            "the program ended with {status} before it checked anything: it must come to `.start()` of a builder of this version"
        ),
    }
}

fn unjudged(folder: &Path, judged: usize) -> Option<RunToCheck> {
    let line = BufReader::new(File::open(folder.join(RUNS)).ok()?).lines().nth(judged)?.ok()?;
    serde_json::from_str(&line).ok()
}

fn last_said(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().cast_signed().saturating_sub(SAID_BYTES).max(0);
    file.seek(SeekFrom::Start(from.unsigned_abs()))?;
    let mut said = Vec::new();
    file.read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).trim().to_owned())
}
