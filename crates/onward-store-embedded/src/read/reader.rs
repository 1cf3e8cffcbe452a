//! Reader threads with read-only connections.
//!
//! Owns the threads and the reads of a single run. Each read sees one snapshot of the file, so that a run that is being deleted
//! is seen whole or not at all (L20). Must never block the writer; a long read only keeps the write-ahead log from being reset.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use onward_core::run::OutboxMessage;
use onward_core::{Index, Record, RunHead, RunKey};
use onward_store::durable::reply::{Pending, Slot, Waiting};
use onward_store::durable::seal::unseal_message;
use onward_store::sync;
use onward_store::{OutboxId, READ_BYTES_MAX, StoreError, StoreFuture, payloads};
use rusqlite::{Connection, Row, params};

use crate::error::{being_repaired, damage_of_run, damaged, is_repairable, read_error};
use crate::file::schema;
use crate::leases::Leases;
use crate::read::blobs;
use crate::read::heads::{self, EVENT_COLUMNS, event_row, log_error};
use crate::read::past;
use crate::row::{Statements, number};
use crate::shared::WriterShared;

type Job = Box<dyn FnOnce(&Connection) + Send>;

#[derive(Default)]
struct Jobs {
    state: Mutex<(VecDeque<Job>, bool)>,
    wake: Condvar,
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Job>, bool)> {
        sync::lock(&self.state)
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.0.pop_front() {
                return Some(job);
            }
            if state.1 {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

pub(crate) struct Readers {
    jobs: Arc<Jobs>,
    threads: Vec<JoinHandle<()>>,
    /// State of the writer, which repairs damage; none if the store is read-only.
    writer: Option<Arc<WriterShared>>,
}

impl Readers {
    pub fn start(directory: &Path, count: usize, writer: Option<Arc<WriterShared>>) -> Result<Readers, StoreError> {
        let jobs = Arc::new(Jobs::default());
        let mut threads = Vec::new();
        for _ in 0..count {
            let db = schema::open_reader(directory)?;
            let jobs = jobs.clone();
            let work = move || {
                while let Some(job) = jobs.next() {
                    job(&db);
                }
            };
            let thread = std::thread::Builder::new().name("onward-reader".to_owned()).spawn(work);
            threads.push(thread.map_err(|error| StoreError::Unavailable { why: error.to_string() })?);
        }
        Ok(Readers { jobs, threads, writer })
    }

    /// Reads on one of the threads, from one snapshot of the file.
    pub fn read<T, F>(&self, read: F) -> StoreFuture<'static, T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let slot = Slot::new();
        let to = slot.clone();
        let writer = self.writer.clone();
        let job: Job = Box::new(move |db| {
            let repaired = writer.as_ref().map_or(0, |writer| writer.stats().repaired);
            let request_repair = || writer.is_some_and(|writer| writer.request_repair(repaired));
            let answer = catch_unwind(AssertUnwindSafe(|| at_one_moment(db, read)));
            let answer = answer.unwrap_or_else(|_| Err(damaged("a read", "it panicked")));
            let is_missed = past::take_missed();
            let answer = match answer {
                Err(error) if is_repairable(&error) => Err(if request_repair() { being_repaired(&error) } else { error }),
                answer => {
                    if is_missed {
                        request_repair();
                    }
                    answer
                }
            };
            to.put(answer);
            to.release();
        });
        self.jobs.lock().0.push_back(job);
        self.jobs.wake.notify_one();
        Box::pin(Waiting(slot))
    }

    pub fn stop(&mut self) {
        self.jobs.lock().1 = true;
        self.jobs.wake.notify_all();
        let own = std::thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != own) {
            let _ = thread.join();
        }
    }
}

fn at_one_moment<T>(db: &Connection, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
    let transaction = db.unchecked_transaction().map_err(read_error)?;
    let answer = read(db);
    drop(transaction);
    answer
}

pub(crate) fn read_run(
    db: &Connection,
    leases: &Leases,
    key: &RunKey,
    generation: Option<u32>,
) -> Result<Option<RunHead>, StoreError> {
    let loaded = match heads::load(db, key, generation) {
        Err(error) if is_repairable(&error) => heads::recover(db, key, generation).ok().flatten().ok_or(error)?,
        loaded => match loaded? {
            Some(loaded) => loaded,
            None => return Ok(None),
        },
    };
    let mut head = loaded.head;
    leases.show(loaded.rk, &mut head);
    Ok(Some(head))
}

pub(crate) fn read_log(
    db: &Connection,
    key: &RunKey,
    generation: Option<u32>,
    from: Index,
    limit: usize,
) -> Result<Vec<Record>, StoreError> {
    let found = match heads::find(db, key, generation) {
        Err(error) if is_repairable(&error) => {
            let recovered = heads::recover(db, key, generation).ok().flatten().ok_or(error)?;
            Some(heads::LogLocation { rk: recovered.rk, next_index: recovered.head.next_index })
        }
        found => found?,
    };
    let run = found.ok_or_else(|| StoreError::RunNotFound { key: key.clone() })?;
    let records = read_bounded(db, key, run.rk, from, limit, READ_BYTES_MAX)?;
    // The row has the minimum length of the log: a missing tail is damage, not an end.
    let end = records.last().map_or(from, Record::next_index);
    if records.len() < limit && !payloads::is_long(&records) && end < run.next_index {
        return Err(StoreError::LogCorrupt { key: key.clone(), index: end, why: "it is missing".to_owned() });
    }
    Ok(records)
}

/// Returns up to `limit` records from the one that holds event `from`.
pub(crate) fn read_records(db: &Connection, key: &RunKey, rk: i64, from: Index, limit: usize) -> Result<Vec<Record>, StoreError> {
    read_bounded(db, key, rk, from, limit, usize::MAX)
}

/// Reads like [`read_records`], but ends behind the record at which the payloads reach `bytes_max`.
fn read_bounded(
    db: &Connection,
    key: &RunKey,
    rk: i64,
    from: Index,
    limit: usize,
    bytes_max: usize,
) -> Result<Vec<Record>, StoreError> {
    let (mut expected, mut bytes) = (from, 0);
    let mut records = Vec::new();
    let mut read = || -> rusqlite::Result<Result<(), StoreError>> {
        let mut statement = db.prepare_cached(&format!(
            "SELECT {EVENT_COLUMNS} FROM events WHERE rk = ?1
               AND idx >= coalesce((SELECT max(idx) FROM events WHERE rk = ?1 AND idx <= ?2), ?2) ORDER BY idx LIMIT ?3"
        ))?;
        let mut rows = statement.query(params![rk, number(from.0), number(limit)])?;
        while let Some(row) = rows.next()? {
            let event = event_row(row)?;
            let mut record = match event.decode(key) {
                Ok(record) => record,
                Err(error) => return Ok(Err(error)),
            };
            let follows = if records.is_empty() { record.index <= expected } else { record.index == expected };
            if !follows {
                let why = "it is missing".to_owned();
                return Ok(Err(StoreError::LogCorrupt { key: key.clone(), index: expected, why }));
            }
            if let Err(error) = blobs::restore(db, &mut record.events) {
                return Ok(Err(damage_of_run(key, record.index, error)));
            }
            expected = record.next_index();
            // The first record may end before `from`: then it does not count.
            bytes += if expected > from { payloads::payload_bytes(&record.events) } else { 0 };
            records.push(record);
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(Ok(()))
    };
    let done = read();
    done.map_err(|error| log_error(key, expected, error))??;
    // The first record may end before `from`: then it is dropped.
    records.retain(|record| record.next_index() > from);
    Ok(records)
}

pub(crate) fn read_outbox(db: &Connection, limit: usize) -> Result<Vec<(OutboxId, OutboxMessage)>, StoreError> {
    let sql = "SELECT id, root, data FROM outbox INDEXED BY outbox_id WHERE id > ?1 ORDER BY id LIMIT ?2";
    let read = |row: &Row<'_>| {
        let data = row.get_ref(2)?.as_blob().map(<[u8]>::to_vec).unwrap_or_default();
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1).unwrap_or_default(), data))
    };
    let (mut found, mut after, mut first_error) = (Vec::new(), 0, None);
    while found.is_empty() {
        let page = db.all(sql, [after, number(limit)], read).map_err(read_error)?;
        let Some((last, ..)) = page.last() else { break };
        after = *last;
        for (id, root, data) in page {
            match read_delivery(db, &data) {
                Ok(message) => found.push((OutboxId(id as u64), message)),
                Err(error) => first_error = first_error.or(Some(lost_news(db, root, error))),
            }
        }
    }
    // Damaged messages are skipped while others can be delivered; once only damaged ones are left, every call reports them.
    match first_error {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

fn read_delivery(db: &Connection, data: &[u8]) -> Result<OutboxMessage, StoreError> {
    let mut message = unseal_message(data)?;
    blobs::restore(db, &mut message)?;
    Ok(message)
}

/// Names the run whose outbox messages are damaged.
fn lost_news(db: &Connection, root: i64, error: StoreError) -> StoreError {
    match (heads::key_of(db, root), error) {
        (Ok(Some(key)), StoreError::Corrupt { why }) => {
            let why = format!("its message to another run cannot be delivered: {why}");
            StoreError::LogCorrupt { key, index: Index(0), why }
        }
        (_, error) => error,
    }
}
