//! Replay of recorded runs with the code of this program, before it is deployed.
//!
//! `onward check -- PROGRAM` starts the program with `ONWARD_CHECK` set to a folder. [`crate::Builder::start`] then opens no
//! directory and no connection. It replays every log of `runs.jsonl` in that folder, writes one verdict per run to
//! `verdicts.jsonl`, and fails with `only_checked`. No step runs, and nothing is recorded.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onward_core::event::RunPaused;
use onward_core::{Name, Record, RunKey};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::encryption::{CodecError, EncryptionBoundary, PayloadRuns};
use crate::host::code::WorkerShared;
use crate::host::replay::{Earlier, Logs, replay_log};
use crate::registry::Registry;

/// The environment variable with the path of the folder.
pub const FOLDER: &str = "ONWARD_CHECK";
/// The file of runs, one [`RunToCheck`] per line.
pub const RUNS: &str = "runs.jsonl";
/// The file of verdicts, one [`Verdict`] per line, in the order of the runs.
pub const VERDICTS: &str = "verdicts.jsonl";

/// A run with its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunToCheck {
    pub run: RunKey,
    pub kind: Name,
    pub version: Option<Name>,
    pub generation: u32,
    pub records: Vec<Record>,
    /// The log of an agent's prelude (the code before its first turn), if `records` are those of a turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prelude: Vec<Record>,
    /// Earlier logs with the agent's conversation, latest first. The code may read it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierLog>,
}

/// The log of an earlier generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EarlierLog {
    pub generation: u32,
    pub records: Vec<Record>,
}

/// The result of replaying one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub run: RunKey,
    pub kind: Name,
    pub version: Option<Name>,
    pub generation: u32,
    pub found: CheckResult,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// The code makes the recorded calls, up to the end of the log.
    Safe,
    /// The code would pause the run, for this reason.
    Pauses(Box<RunPaused>),
    /// This program has not registered the kind; another program may have.
    NoCode,
    /// This program has registered the kind, but not the version that the run is pinned to.
    NoVersion,
    /// The program's codec cannot read the log, for this reason.
    Unreadable(String),
}

/// Returns the folder if the program was started by `onward check`.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Writes a verdict for every run of the folder and returns their number.
pub(crate) fn check(folder: &Path, registry: &Registry, codec: Option<&EncryptionBoundary>) -> Result<u64, Error> {
    let shared = WorkerShared {
        deps: Arc::new(registry.deps.clone()),
        middlewares: registry.middlewares.clone(),
        checks_answers: codec.is_some(),
        ..WorkerShared::default()
    };
    let unusable = |path: &Path, why: &dyn std::fmt::Display| Error::CheckFailed { why: format!("{}: {why}", path.display()) };
    let (from, to) = (folder.join(RUNS), folder.join(VERDICTS));
    let runs = BufReader::new(File::open(&from).map_err(|error| unusable(&from, &error))?);
    let mut verdicts = BufWriter::new(File::create(&to).map_err(|error| unusable(&to, &error))?);
    let mut count = 0;
    for line in runs.lines() {
        let line = line.map_err(|error| unusable(&from, &error))?;
        let run: RunToCheck = serde_json::from_str(&line).map_err(|error| unusable(&from, &error))?;
        let verdict = serde_json::to_string(&judge(run, registry, codec, &shared)).map_err(|error| unusable(&to, &error))?;
        // Flushed line by line: the parent process shows progress, and knows which run crashed the program.
        writeln!(verdicts, "{verdict}").and_then(|()| verdicts.flush()).map_err(|error| unusable(&to, &error))?;
        count += 1;
    }
    Ok(count)
}

fn judge(mut checked: RunToCheck, registry: &Registry, codec: Option<&EncryptionBoundary>, shared: &WorkerShared) -> Verdict {
    let found = match decode(&mut checked, codec) {
        Err(error) => CheckResult::Unreadable(error.to_string()),
        Ok(()) => replay(&checked, registry, shared),
    };
    let RunToCheck { run, kind, version, generation, .. } = checked;
    Verdict { run, kind, version, generation, found }
}

fn decode(checked: &mut RunToCheck, codec: Option<&EncryptionBoundary>) -> Result<(), CodecError> {
    let Some(boundary) = codec else { return Ok(()) };
    // A later log of a fork can have payloads that were encoded for its original, up to the fork point.
    let prelude = checked.prelude.first().cloned();
    let earlier = checked.earlier.iter_mut().map(|log| &mut log.records);
    for records in [&mut checked.records, &mut checked.prelude].into_iter().chain(earlier) {
        let mut payload_runs = PayloadRuns::of(&checked.run, records.first());
        prelude.iter().for_each(|first| payload_runs.add_origins(first));
        records.iter_mut().try_for_each(|record| boundary.record_in(record, &payload_runs))?;
    }
    Ok(())
}

fn replay(checked: &RunToCheck, registry: &Registry, shared: &WorkerShared) -> CheckResult {
    let Some(handler) = registry.handler(&checked.kind, checked.version.as_ref()) else {
        let is_known = registry.workflows.contains_key(&checked.kind);
        return if is_known { CheckResult::NoVersion } else { CheckResult::NoCode };
    };
    let mut earlier = Earlier::default();
    for EarlierLog { generation, records, .. } in &checked.earlier {
        earlier.push(*generation, records);
    }
    let logs = Logs { prelude: &checked.prelude, records: &checked.records, earlier: &|wish| earlier.read(wish) };
    match replay_log(&checked.run, &handler, logs, shared, false) {
        Ok(_) => CheckResult::Safe,
        // A fault without a pause is a lost lease, which cannot happen in a replay without a lease.
        Err(fault) => fault.into_pause().map_or(CheckResult::Safe, |pause| CheckResult::Pauses(Box::new(pause))),
    }
}
