//! One transaction, from BEGIN to COMMIT, and again if somebody was in the way.
//!
//! Invariants:
//! - DB6: nobody is answered, and no listener is called, before COMMIT has returned.
//! - DB7 (L5): a connection that is lost before COMMIT was sent has changed nothing, and the work is done again; one that is lost behind it
//!   leaves an outcome that nobody knows, and whoever asked is told so.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crate::connection::sql::Db;
use crate::connection::timeout::Patience;
use crate::error::{Meaning, Outcome, Trouble, describe, meaning, told};
use crate::restore_guard::Verdict;
use crate::shared::Shared;
use crate::stats::Counters;
use crate::write::unit::Scene;
use futures_util::FutureExt;
use onward_core::{RunKey, Timestamp};
use onward_store::StoreError;
use onward_store::kept::News;

/// How often a transaction is tried.
const TRIES_MAX: u32 = 12;
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What a transaction needs before it begins.
#[derive(Clone, Default)]
pub(crate) struct Wants {
    pub keys: Vec<RunKey>,
    /// Those of the keys whose open children have to be known, because they may end.
    pub parents: Vec<RunKey>,
    /// How many runs it may make.
    pub fresh: usize,
}

/// What became of a transaction that did not happen.
pub(crate) enum Fate {
    /// Nothing was written, and this is what to say.
    Undone(StoreError),
    /// Nothing was written, because one of several met something damaged, or asked for something that the database does not take.
    Damaged(StoreError),
    /// The code panicked.
    Panicked(String),
    /// Nobody knows.
    Unknown(String),
}

impl Fate {
    pub fn into_error(self) -> StoreError {
        match self {
            Fate::Undone(error) | Fate::Damaged(error) => error,
            Fate::Panicked(why) => StoreError::Corrupt { why: format!("an operation broke an invariant: {why}") },
            Fate::Unknown(why) => StoreError::Unavailable { why: format!("the connection was lost during the commit: {why}") },
        }
    }
}

/// A connection that is made when it is needed, and made again when it broke.
pub(crate) struct Line {
    shared: Arc<Shared>,
    db: Option<Db>,
    patience: Patience,
}

impl Line {
    pub fn new(shared: Arc<Shared>) -> Line {
        Line { shared, db: None, patience: Patience::Usual }
    }

    /// What is asked from now on may take so long.
    pub fn be(&mut self, patience: Patience) {
        self.patience = patience;
    }

    pub async fn get(&mut self) -> Outcome<&Db> {
        if self.db.as_ref().is_none_or(Db::is_closed) {
            self.db = Some(self.shared.entrance.enter(&self.shared.judge).await?);
        }
        let db = self.db.as_ref().expect("it was just made");
        db.be(self.patience);
        Ok(db)
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What it means that the connection is lost, where it was given up because the database said nothing any more.
    pub fn silence(&self) -> Option<StoreError> {
        self.db.as_ref().and_then(Db::silence)
    }

    /// Does not use the connection again: what is open on it, the server undoes.
    pub fn hang_up(&mut self) {
        self.db = None;
    }
}

/// What is told to listeners after a transaction.
pub(crate) struct Aftermath {
    pub news: Vec<News>,
    pub due: Option<Timestamp>,
}

/// Runs `work` in a transaction, and again as long as that may help.
pub(crate) async fn transact<T>(
    shared: &Shared,
    line: &mut Line,
    wants: &Wants,
    work: impl AsyncFn(&mut Scene<'_>) -> Outcome<T>,
) -> Result<(T, Aftermath), Fate> {
    for attempt in 1.. {
        let tried = match line.get().await {
            Ok(db) => attempt_once(shared, db, wants, &work).await,
            Err(trouble) => Err(Failed::Before(trouble)),
        };
        let (error, is_unknown) = match tried {
            Ok(done) => return Ok(done),
            Err(Failed::Before(Trouble::Refused(error))) => {
                shared.mend_by(&error);
                undo(line).await;
                return Err(Fate::Undone(error));
            }
            Err(Failed::Before(Trouble::Damaged(error))) => {
                shared.mend_by(&error);
                undo(line).await;
                return Err(Fate::Damaged(error));
            }
            Err(Failed::Before(Trouble::Panicked(why))) => {
                line.hang_up();
                return Err(Fate::Panicked(why));
            }
            Err(Failed::Before(Trouble::Sql(error))) => (error, false),
            Err(Failed::AtCommit(error)) => (error, true),
        };
        let (meaning, silence) = (meaning(&error), line.silence());
        line.hang_up();
        if is_unknown && meaning == Meaning::Lost {
            return Err(Fate::Unknown(describe(&error))); // DB7
        }
        // Once more would take as long again.
        if let Some(error) = silence {
            return Err(Fate::Undone(error)); // DB11
        }
        if meaning == Meaning::Other {
            return Err(Fate::Damaged(told(&error))); // DB8: its neighbors are not to blame
        }
        if attempt >= TRIES_MAX || !matches!(meaning, Meaning::Again | Meaning::Lost) {
            return Err(Fate::Undone(told(&error)));
        }
        Counters::add(&shared.counters.retries, 1);
        tokio::time::sleep(pause(attempt)).await;
    }
    unreachable!("the last try returns")
}

/// Longer each time, and never the same for two who are in each other's way.
fn pause(attempt: u32) -> Duration {
    let millis = 1u64 << attempt.min(9);
    let spread = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), attempt) % millis;
    Duration::from_millis(millis + spread).min(PAUSE_MAX)
}

enum Failed {
    Before(Trouble),
    AtCommit(tokio_postgres::Error),
}

async fn attempt_once<T>(
    shared: &Shared,
    db: &Db,
    wants: &Wants,
    work: &impl AsyncFn(&mut Scene<'_>) -> Outcome<T>,
) -> Result<(T, Aftermath), Failed> {
    let mut scene = begin(shared, db, wants).await.map_err(Failed::Before)?;
    let done = AssertUnwindSafe(work(&mut scene)).catch_unwind().await;
    scene.damaged.keys().chain(&scene.hurt).for_each(|key| shared.mend_soon(key));
    let answer = done.unwrap_or_else(|panic| Err(Trouble::Panicked(message(&*panic)))).map_err(Failed::Before)?;
    let after = scene.aftermath();
    let statements = scene.statements();
    db.pipeline(None, &statements, Some("COMMIT")).await.map_err(Failed::AtCommit)?;
    Ok((answer, after))
}

/// Begins, and once more where the database turned out to be another one (DB9).
async fn begin<'c>(shared: &Shared, db: &'c Db, wants: &Wants) -> Outcome<Scene<'c>> {
    let scene = Scene::begin(db, &shared.judge, &shared.entrance.lineage, wants).await?;
    match shared.entrance.lineage.judge(scene.sight) {
        Verdict::Same => Ok(scene),
        Verdict::Moved => {
            shared.moved();
            Ok(scene)
        }
        Verdict::Doubtful => {
            db.execute("ROLLBACK").await?;
            if shared.entrance.lineage.verify(db).await? {
                shared.moved();
            }
            Scene::begin(db, &shared.judge, &shared.entrance.lineage, wants).await
        }
    }
}

async fn undo(line: &mut Line) {
    // A line that is not up has nothing to undo.
    let Some(db) = &line.db else { return };
    if db.execute("ROLLBACK").await.is_err() {
        line.hang_up();
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
