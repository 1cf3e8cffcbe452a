//! Task leases that a previous process left.
//!
//! Run leases end with their process; task leases are in rows, since remote workers outlive the server. Workers inside the
//! process that held the lock are dead, so their tasks lose their leases at opening. Each loss is counted, so that a task that
//! keeps killing its process is quarantined as usual (K3).

use onward_core::task::TaskState;
use onward_core::{Timestamp, WorkerId};
use rusqlite::{Connection, params};

use crate::row::{due_number, seal};
use crate::store::WorkersInside;
use crate::write::tasks::{COLUMNS, read_row, state_column};

pub(crate) fn take_tasks_back(db: &Connection, workers: WorkersInside, now: Timestamp) -> rusqlite::Result<()> {
    let transaction = db.unchecked_transaction()?;
    let mut statement = db.prepare(&format!("SELECT {COLUMNS} FROM tasks WHERE due IS NOT NULL AND state = ?1"))?;
    let leased = statement.query_map(params![TaskState::Leased.number()], read_row)?.collect::<Result<Vec<_>, _>>()?;
    drop(statement);
    for row in leased {
        // A damaged task is handled when its lease expires. Large payloads stay where they are: the row's references do not
        // change.
        let (tk, Ok(mut task)) = (row.tk, row.task()) else { continue };
        if !has_died(workers, task.worker.as_ref()) {
            continue;
        }
        task.lose_worker(now);
        db.prepare_cached("UPDATE tasks SET state = ?2, visible = ?3, due = ?4, data = ?5 WHERE tk = ?1")?.execute(params![
            tk,
            state_column(&task, now),
            due_number(task.visible_at),
            task.due_at().map(due_number),
            seal(&task),
        ])?;
    }
    transaction.commit()
}

fn has_died(workers: WorkersInside, worker: Option<&WorkerId>) -> bool {
    match workers {
        WorkersInside::None => false,
        WorkersInside::Named(begin) => worker.is_some_and(|worker| worker.as_str().starts_with(begin)),
        WorkersInside::All => true,
    }
}
