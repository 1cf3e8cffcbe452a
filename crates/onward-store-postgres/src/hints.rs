//! What other servers are told, and what they tell.
//!
//! Owns the one connection that listens, and the words on the channel. Hints go out after the commit, on their own: they are never
//! needed, and a NOTIFY inside of a transaction would make all such commits of the database wait for each other. Whoever hears one reads
//! what it is about and tells its own listeners. As long as nobody else is heard, nothing is sent.
//!
//! What must not depend on hints is looked up once a second: notes about runs that are held here (`calls`), and only while there are any.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onward_core::task::Task;
use onward_core::{Index, RunKey, Timestamp};
use onward_store::kept::News;
use onward_store::kept::seal::unseal;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::Config;

use crate::blobs;
use crate::error::Outcome;
use crate::load::row_key;
use crate::reader::{find, read_records};
use crate::row::unseal_head;
use crate::shared::Shared;
use crate::sql::{Db, Sql};
use crate::words::{Words, parse};

/// How long what is to be sent waits for company.
const PACE: Duration = Duration::from_millis(5);
/// How often a server says that it is there, and for how long it is believed.
const HELLO_EVERY: Duration = Duration::from_secs(10);
const BELIEVED_FOR: Duration = Duration::from_secs(30);
/// How often notes are looked for, and how long a broken connection is left alone.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many records of one run are told at once.
const RECORDS_MAX: usize = 1_000;

#[derive(Default)]
pub(crate) struct Hints {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    /// What is to be sent.
    words: Words,
    /// Runs whose listeners here have not heard everything.
    behind: BTreeSet<RunKey>,
    /// When another server was last heard.
    heard_at: Option<Instant>,
}

impl Hints {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, news: &[News], due: Option<Timestamp>) {
        let mut state = self.lock();
        if state.heard_at.is_none_or(|at| at.elapsed() > BELIEVED_FOR) {
            return;
        }
        state.words.add(news, due);
        drop(state);
        self.wake.notify_one();
    }

    /// Has the rest of a run's log read and told.
    pub fn catch_up(&self, run: RunKey) {
        self.lock().behind.insert(run);
        self.wake.notify_one();
    }

    pub fn wake(&self) {
        self.wake.notify_one();
    }
}

/// Listens and sends for as long as the store is open; comes again when the connection breaks.
pub(crate) async fn run(shared: Arc<Shared>, config: Config, listen: bool) {
    loop {
        // Until somebody listens here there is nobody to tell.
        while !shared.has_listeners() {
            shared.hints.wake.notified().await;
        }
        let opened = if listen { Db::listening(&config).await } else { Db::deaf(&config).await };
        if let Ok((db, mut heard)) = opened {
            let _ = serve(&shared, &db, &mut heard).await;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn serve(shared: &Shared, db: &Db, heard: &mut UnboundedReceiver<String>) -> Outcome<()> {
    let mut hello = tokio::time::interval(HELLO_EVERY);
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            payload = heard.recv() => match payload {
                Some(payload) => hear(shared, db, &payload).await?,
                None => return Ok(()),
            },
            _ = hello.tick() => send(shared, db, true).await?,
            _ = look.tick() => look_for_calls(shared, db).await?,
            () = shared.hints.wake.notified() => {
                let behind = std::mem::take(&mut shared.hints.lock().behind);
                for run in behind {
                    tell_rest(shared, db, &run).await?;
                }
                send(shared, db, false).await?;
                tokio::time::sleep(PACE).await;
            }
        }
    }
}

async fn send(shared: &Shared, db: &Db, hello: bool) -> Outcome<()> {
    let words = std::mem::take(&mut shared.hints.lock().words);
    if words.is_empty() && !hello {
        return Ok(());
    }
    let sql = Sql::new("SELECT pg_notify('onward', $1)").text(words.payload(&shared.server));
    // What is only a hint need not wait for the disk.
    db.pipeline(Some("BEGIN; SET LOCAL synchronous_commit = off"), &[sql], Some("COMMIT")).await?;
    Ok(())
}

async fn hear(shared: &Shared, db: &Db, payload: &str) -> Outcome<()> {
    let Some(heard) = parse(payload).filter(|heard| heard.server != shared.server) else { return Ok(()) };
    let is_new = {
        let mut state = shared.hints.lock();
        let before = state.heard_at.replace(Instant::now());
        before.is_none_or(|at| at.elapsed() > BELIEVED_FOR)
    };
    if is_new {
        send(shared, db, true).await?;
    }
    let mut news = Vec::new();
    news.extend(heard.words.has_deliveries.then_some(News::DeliveryAdded));
    pending(db, &heard.words.pending, &mut news).await?;
    queued(db, &heard.words.queued, &mut news).await?;
    shared.tell_here(news, heard.words.due);
    appended(shared, db, &heard.words.appended).await
}

async fn pending(db: &Db, runs: &BTreeSet<RunKey>, news: &mut Vec<News>) -> Outcome<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let text = "SELECT r.ns, r.id, r.head FROM onward.runs r JOIN unnest($1::text[], $2::text[]) AS k(ns, id)
      ON r.ns = k.ns AND r.id = k.id WHERE r.ready IS NOT NULL";
    for row in db.query(&of_runs(text, runs)).await? {
        if let Ok(key) = row_key(&row, 0)
            && let Ok((head, _)) = unseal_head(&key, row.get(2))
        {
            news.push(News::RunPending { head });
        }
    }
    Ok(())
}

async fn queued(db: &Db, runs: &BTreeSet<RunKey>, news: &mut Vec<News>) -> Outcome<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let text = "SELECT t.rk, t.data FROM onward.tasks t JOIN onward.runs r ON r.rk = t.rk
      JOIN unnest($1::text[], $2::text[]) AS k(ns, id) ON r.ns = k.ns AND r.id = k.id WHERE t.state = 0 LIMIT 256";
    for row in db.query(&of_runs(text, runs)).await? {
        if let Ok(task) = unseal::<Task>("a task", row.get(1))
            && let Ok(task) = blobs::restore(db, row.get(0), task).await
        {
            news.push(News::TaskQueued { task: Box::new(task) });
        }
    }
    Ok(())
}

fn of_runs(text: &str, runs: &BTreeSet<RunKey>) -> Sql {
    let names = |key: &RunKey| (key.namespace.as_str().to_owned(), key.id.as_str().to_owned());
    let (namespaces, ids) = runs.iter().map(names).unzip();
    Sql::new(text).texts(namespaces).texts(ids)
}

/// Of a run that is held here everything is told in order; of others what the hint is about.
async fn appended(shared: &Shared, db: &Db, runs: &BTreeMap<RunKey, (u32, Index)>) -> Outcome<()> {
    for (run, (generation, from)) in runs {
        if shared.held.holds(run) {
            tell_rest(shared, db, run).await?;
        } else {
            tell_from(shared, db, run, *generation, *from).await?;
        }
    }
    Ok(())
}

/// Inputs that were taken elsewhere for runs that are held here.
async fn look_for_calls(shared: &Shared, db: &Db) -> Outcome<()> {
    if shared.held.is_empty() {
        return Ok(());
    }
    let text = "WITH c AS (DELETE FROM onward.calls WHERE server = $1 RETURNING rk) SELECT r.ns, r.id FROM onward.runs r JOIN c USING (rk)";
    for row in db.query(&Sql::new(text).text(&shared.server)).await? {
        if let Ok(run) = row_key(&row, 0) {
            tell_rest(shared, db, &run).await?;
        }
    }
    Ok(())
}

/// Tells what listeners here have not heard of a run that is held here.
async fn tell_rest(shared: &Shared, db: &Db, run: &RunKey) -> Outcome<()> {
    match shared.held.next(run) {
        Some((generation, from)) => tell_from(shared, db, run, generation, from).await,
        None => Ok(()),
    }
}

async fn tell_from(shared: &Shared, db: &Db, run: &RunKey, generation: u32, from: Index) -> Outcome<()> {
    let Ok(Some(found)) = find(db, run).await else { return Ok(()) };
    let Ok(records) = read_records(db, run, found.rk, generation, from, RECORDS_MAX).await else { return Ok(()) };
    let is_current = found.head.generation == generation;
    let news = records.into_iter().filter(|_| is_current).map(|record| News::Appended { head: found.head.clone(), record });
    shared.tell_here(news.collect(), None);
    Ok(())
}
