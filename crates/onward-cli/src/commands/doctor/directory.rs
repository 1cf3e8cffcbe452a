//! Repair and checks of a data directory: format, lock, permissions, disk space, sync latency, checksums of pages, rows and logs.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use onward_core::api::RunQuery;
use onward_core::{Index, Record};
use onward_store_embedded::{EmbeddedStore, FORMAT};

use super::finding::Findings;
use super::work;
use crate::args::Global;
use crate::commands::run::Pages;
use crate::connection::Connection;
use crate::directory::shell_path;
use crate::output::{Progress, count, time};
use crate::serving::mark;

const DATABASE: &str = "onward.db";
const LOCK: &str = "onward.lock";

/// Offset of SQLite's `user_version` in the database header, big-endian.
const FORMAT_AT: usize = 60;

const SPACE_LOW: u64 = 1 << 30;
const SPACE_NONE: u64 = 64 << 20;

const SYNCS: usize = 16;

/// A slower sync delays every commit; a faster one than any disk did not reach the disk.
const SYNC_SLOW: Duration = Duration::from_millis(20);
const SYNC_UNREAL: Duration = Duration::from_micros(10);

/// Maximum number of pages and rows that are listed.
const NAMED_MAX: usize = 20;

/// Maximum number of losses of a repair that are listed.
const LISTED_MAX: usize = 1_000;

/// Page size of runs and records.
const PAGE: usize = 1_000;

pub async fn check(path: &Path, quick: bool, global: &Global, findings: &mut Findings) {
    if !path.exists() {
        let detail = format!("{} does not exist", path.display());
        let advice = "set `--data DIR` or `--server URL`; a worker or `onward dev` creates the directory";
        return findings.fail("directory", detail, advice);
    }
    let connection = match Connection::to_read(global).await {
        Ok(connection) => {
            findings.ok("directory", format!("{} is an Onward directory", path.display()));
            Some(connection)
        }
        Err(error) => {
            findings.fail_with("directory", &error);
            None
        }
    };
    if connection.is_some() || path.join(DATABASE).exists() {
        format(path, findings);
        lock(path, findings);
        modes(path, global, findings);
        write_ahead_log(path, findings);
        if !quick {
            pages(path, findings);
            rows(path, findings);
        }
        space(path, findings);
        syncs(path, findings);
    }
    let Some(connection) = connection else { return };
    work::check(&connection, None, findings).await;
    if quick {
        return findings.ok("logs", "skipped: --quick");
    }
    logs(&connection, findings).await;
}

fn format(path: &Path, findings: &mut Findings) {
    let mut header = [0; FORMAT_AT + 4];
    let read = File::open(path.join(DATABASE)).and_then(|mut file| file.read_exact(&mut header));
    match read.map(|()| u32::from_be_bytes([header[60], header[61], header[62], header[63]])) {
        Ok(found) if found <= FORMAT => findings.ok("format", format!("{found}; this version reads up to {FORMAT}")),
        Ok(found) => findings.fail("format", format!("{found}; this version reads up to {FORMAT}"), "use a newer version"),
        Err(error) => findings.fail("format", format!("cannot read {DATABASE}: {error}"), "check the directory's permissions"),
    }
}

fn lock(path: &Path, findings: &mut Findings) {
    let Ok(file) = File::open(path.join(LOCK)) else { return findings.ok("lock", "free") };
    match (file.try_lock(), mark::server_of(path)) {
        (Ok(()), _) => findings.ok("lock", "free"),
        (Err(TryLockError::WouldBlock), Some(url)) => {
            findings.ok("lock", format!("held by the server at {url}; use `--server {url}` for commands that write"));
        }
        (Err(TryLockError::WouldBlock), None) => {
            findings.ok("lock", "held by another process; only commands that read work");
        }
        (Err(TryLockError::Error(error)), _) => {
            findings.warn("lock", format!("cannot test the lock: {error}"), "use a file system with file locks");
        }
    }
}

const REPAIR: &str =
    "stop the process that has it open, copy the directory and run `onward doctor --repair`, or restore a backup";

/// Checks that every acknowledged write can be read from the write-ahead log.
fn write_ahead_log(path: &Path, findings: &mut Findings) {
    if EmbeddedStore::is_mark_damaged(path) {
        let detail = "onward.synced has a wrong checksum: damage to the latest commits in the write-ahead log cannot be detected";
        findings.fail("mark", detail, "check the disk; the next commit rewrites the file");
    }
    match EmbeddedStore::examine(path) {
        Ok(None) => findings.ok("log", "every synced commit is present"),
        Ok(Some(damage)) => findings.fail("log", damage.to_string(), REPAIR),
        Err(error) => findings.fail_with("log", &error.into()),
    }
}

/// Checks every page, because reading logs does not find a damaged index.
fn pages(path: &Path, findings: &mut Findings) {
    match EmbeddedStore::damaged_pages(path) {
        Ok(damaged) if damaged.is_empty() => findings.ok("pages", "all checksums match"),
        Ok(damaged) => {
            let listed: Vec<String> = damaged.iter().take(NAMED_MAX).map(u64::to_string).collect();
            let detail = format!("{} with a wrong checksum: {}", count(damaged.len() as u64, "page"), listed.join(", "));
            findings.fail("pages", detail, REPAIR);
        }
        Err(error) => findings.fail_with("pages", &error.into()),
    }
}

/// Checks the rows of runs against their checksums and logs: a rewritten page has a correct checksum over a damaged row.
fn rows(path: &Path, findings: &mut Findings) {
    match EmbeddedStore::damaged_rows(path) {
        Ok(damaged) if damaged.is_empty() => findings.ok("rows", "all rows match their checksums and logs"),
        Ok(damaged) => {
            let named: Vec<&str> = damaged.iter().take(NAMED_MAX).map(String::as_str).collect();
            let detail = format!("{} damaged: {}", count(damaged.len() as u64, "row"), named.join("; "));
            findings.fail("rows", detail, REPAIR);
        }
        Err(error) => findings.fail_with("rows", &error.into()),
    }
}

/// Checks whether other users of this machine can read secrets (S39).
fn modes(path: &Path, global: &Global, findings: &mut Findings) {
    let open = crate::modes::readable_by_others(path, global.config.text("tls_key").as_deref().map(Path::new));
    if open.is_empty() {
        return findings.ok("modes", "not readable by other users");
    }
    for file in open {
        findings.warn("modes", file.to_string(), file.advice());
    }
}

fn space(path: &Path, findings: &mut Findings) {
    let free = match rustix::fs::statvfs(path) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => return findings.warn("space", format!("cannot read the free space: {error}"), "check it with `df`"),
    };
    let listed = format!("{:.1} GiB free", free as f64 / (1u64 << 30) as f64);
    let advice = "free disk space: writes fail while the disk is full";
    if free < SPACE_NONE {
        findings.fail("space", listed, advice);
    } else if free < SPACE_LOW {
        findings.warn("space", listed, advice);
    } else {
        findings.ok("space", listed);
    }
}

/// Measures the latency of a sync, which every acknowledged write waits for.
fn syncs(path: &Path, findings: &mut Findings) {
    let file = path.join(format!(".onward-doctor-{}", std::process::id()));
    let timed = time_syncs(&file);
    drop(std::fs::remove_file(&file)); // it may not exist
    match timed {
        Ok(median) => {
            let listed = format!("{} µs each (median of {SYNCS})", median.as_micros());
            if median > SYNC_SLOW {
                findings.warn("syncs", listed, "use a faster disk, or more concurrent runs: every commit waits for a sync");
            } else if median < SYNC_UNREAL {
                findings.warn(
                    "syncs",
                    listed,
                    "check that syncs reach the disk: otherwise a power failure loses acknowledged writes",
                );
            } else {
                findings.ok("syncs", listed);
            }
        }
        Err(error) => findings.warn("syncs", format!("cannot measure: {error}"), "check the directory's permissions"),
    }
}

fn time_syncs(path: &Path) -> std::io::Result<Duration> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut spans = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        file.write_all(&[0; 4_096])?;
        let begun = Instant::now();
        file.sync_data()?;
        spans.push(begun.elapsed());
    }
    spans.sort();
    Ok(spans[SYNCS / 2])
}

/// Reads every log of the namespace, which verifies the checksum of every record.
async fn logs(connection: &Connection, findings: &mut Findings) {
    let mut progress = Progress::new("runs read", false);
    let begun = Instant::now();
    let (mut runs, mut events, mut damaged) = (0, 0, Vec::new());
    let mut pages = Pages::new(RunQuery { namespace: connection.namespace.clone(), limit: PAGE, ..RunQuery::default() });
    loop {
        let page = match pages.next(connection).await {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(error) => {
                drop(progress);
                return findings.fail_with("logs", &error);
            }
        };
        for head in &page {
            for generation in 0..=head.generation {
                match read_log(connection, head, generation).await {
                    Ok(count) => events += count,
                    Err(error) => damaged.push(error.to_string()),
                }
            }
            runs += 1;
            progress.at(runs);
        }
    }
    drop(progress);
    let read = format!(
        "{} of {} in namespace {}, in {}",
        count(events, "event"),
        count(runs, "run"),
        connection.namespace,
        time::span(begun.elapsed())
    );
    match damaged.first() {
        None => findings.ok("logs", format!("{read}: all checksums match")),
        Some(first) => {
            let detail = format!("damaged logs: {} ({read}); the first: {first}", damaged.len());
            let advice = "restore a backup, run `onward doctor --repair`, or delete the damaged runs";
            findings.fail("logs", detail, advice);
        }
    }
}

async fn read_log(connection: &Connection, head: &onward_core::RunHead, generation: u32) -> Result<u64> {
    let mut from = Index(0);
    loop {
        let page = connection.read_log(head.key.clone(), Some(generation), from, PAGE).await?;
        match page.last().map(Record::next_index) {
            Some(next) => from = next,
            None => return Ok(from.0),
        }
    }
}

/// Repairs the directory and reports kept data, losses and the location of the damaged files.
pub fn repair(path: &Path, findings: &mut Findings) {
    let repaired = match EmbeddedStore::repair(path) {
        Ok(repaired) => repaired,
        Err(error) => return findings.fail_with("repair", &error.into()),
    };
    let kept = format!("{} of {}", count(repaired.events, "event"), count(repaired.runs, "run"));
    let Some(aside) = &repaired.aside else {
        return findings.ok("repair", format!("nothing is damaged: {kept}"));
    };
    findings.ok("repair", format!("the new database has {kept}; the damaged files are in {}", shell_path(aside)));
    if let Some(damage) = repaired.log_damage.as_ref().filter(|_| repaired.is_log_restored) {
        findings.ok("log", format!("{damage}; every synced write was restored"));
    } else if let Some(damage) = &repaired.log_damage {
        let advice = "look for the latest acknowledged writes in a backup: they may be missing without a gap in a log";
        findings.fail("log", damage.to_string(), advice);
    }
    if repaired.damaged_pages + repaired.damaged_rows > 0 {
        let (pages, rows) = (count(repaired.damaged_pages, "damaged page"), count(repaired.damaged_rows, "row"));
        findings.warn("pages", format!("{pages}, {rows} with a wrong checksum"), "check the disk for more damage");
    }
    if repaired.lost.is_empty() {
        return findings.ok("lost", "no log has a gap");
    }
    for lost in repaired.lost.iter().take(LISTED_MAX) {
        findings.fail(
            "lost",
            lost.to_string(),
            "restore it from a backup, or give the run up with `onward run terminate` and `onward run delete`",
        );
    }
    if repaired.lost.len() > LISTED_MAX {
        findings.fail("lost", format!("{} more", repaired.lost.len() - LISTED_MAX), "run `onward doctor` to read every log");
    }
}
