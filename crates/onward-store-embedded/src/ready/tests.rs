//! Tests of the parent module.

use super::*;
use crate::write::queues::{HELD, HELD_BY_KEY, NEXT_KEY, TASKS_OF_KEY};
use crate::write::quotas::{LEASES, OPEN_RUNS};
use crate::write::tasks::READY_TASKS;

/// Returns SQLite's plan of a statement on empty tables; plans never depend on table contents.
fn plan(sql: &str) -> String {
    let db = Connection::open_in_memory().expect("memory is there");
    db.execute_batch(&crate::file::schema::make_tables()).expect("the tables can be made");
    let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("the statement fits the tables");
    let none = vec![None::<i64>; statement.parameter_count()];
    let steps = statement.query_map(rusqlite::params_from_iter(none), |row| row.get::<_, String>(3));
    steps.and_then(Iterator::collect::<Result<Vec<_>, _>>).expect("a plan is text").join("; ")
}

#[test]
fn a_claim_reads_no_row_of_another_namespace_kind_or_version() {
    let (next, own) = ("(ns,kind,version)>(?,?,?)", "ns=? AND kind=? AND version=? AND rk>?");
    assert_eq!(plan(NEXT_QUEUE), format!("SEARCH runs USING COVERING INDEX runs_pending ({next})"));
    assert_eq!(plan(PENDING_RUNS), format!("SEARCH runs USING COVERING INDEX runs_pending ({own})"));
    let own = "ns=? AND queue=? AND kind=? AND qkey=?";
    assert_eq!(plan(TASKS_OF_KEY), format!("SEARCH tasks USING INDEX tasks_ready ({own})"));
    let next = "ns=? AND queue=? AND kind=? AND qkey>?";
    assert_eq!(plan(NEXT_KEY), format!("SEARCH tasks USING COVERING INDEX tasks_ready ({next})"));
    let open = plan(OPEN_RUNS);
    assert!(open.contains("USING COVERING INDEX runs_status (ns=? AND status<?)"), "NQ1: {open}");
    assert!(plan(LEASES).contains("USING COVERING INDEX tasks_held (ns=?)"), "NQ3: {}", plan(LEASES));
    assert!(plan(HELD).contains("USING COVERING INDEX tasks_held (ns=? AND queue=?)"), "{}", plan(HELD));
    let held = plan(HELD_BY_KEY);
    assert!(held.contains("USING COVERING INDEX tasks_held (ns=? AND queue=? AND qkey=?)"), "{held}");
    assert_eq!(plan(READY_TASKS), format!("SEARCH tasks USING INDEX tasks_ready ({own})"));
}
