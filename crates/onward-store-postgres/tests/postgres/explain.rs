//! The plan of every statement of the hot operations, as logged by PostgreSQL (`auto_explain`): by an index, in its order.

use std::time::Duration;

use onward_store::conformance::block_on;
use onward_store::{Delete, Retention, Store};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::{Cluster, Settings};

use crate::plans::{fill, work};
use crate::retention::finish;

/// Tables that stay small whatever the load.
const SMALL: [&str; 7] = ["servers", "broadcasts", "shard", "sessions", "kinds", "deleted", "schema_version"];

/// A statement and its plan.
struct Plan {
    text: String,
    nodes: Vec<String>,
}

/// Parses the log: an entry begins in the first column, its continuation lines are indented.
fn plans(log: &str) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    let mut is_open = false;
    for line in log.lines() {
        if !line.starts_with('\t') {
            is_open = line.ends_with("plan:");
        } else if let Some(text) = line.trim_start().strip_prefix("Query Text: ").filter(|_| is_open) {
            plans.push(Plan { text: text.to_owned(), nodes: Vec::new() });
        } else if is_open && let Some(plan) = plans.last_mut() {
            match line.contains("(cost=") {
                true => plan.nodes.push(line.trim().trim_start_matches("->").trim().to_owned()),
                false if plan.nodes.is_empty() => plan.text += &format!(" {}", line.trim()),
                false => {}
            }
        }
    }
    plans
}

impl Plan {
    /// Returns a node that scans a large table, or sorts or hashes more rows than the statement names or limits.
    fn wrong(&self) -> Option<&String> {
        let wrong = |(at, node): &(usize, &String)| match node.as_str() {
            node if node.starts_with("Seq Scan") => !is_small(node),
            node if node.starts_with("Hash Join") || node.starts_with("Merge Join") => true,
            node if ["Sort", "Incremental Sort", "HashAggregate"].iter().any(|kind| node.starts_with(kind)) => {
                !self.is_bounded(at + 1)
            }
            _ => false,
        };
        self.nodes.iter().enumerate().find(wrong).map(|(_, node)| node)
    }

    /// Returns whether the rows of a node are bounded by the values or the limit of the statement. The input of a node follows
    /// it.
    fn is_bounded(&self, at: usize) -> bool {
        let Some(node) = self.nodes.get(at) else { return false };
        let begins = |kinds: &[&str]| kinds.iter().any(|kind| node.starts_with(kind));
        begins(&["Function Scan", "CTE Scan", "Limit", "Result"])
            || (node.starts_with("Seq Scan") && is_small(node))
            || (begins(&["Nested Loop", "HashAggregate", "Sort", "LockRows", "Unique"]) && self.is_bounded(at + 1))
    }
}

fn is_small(scan: &str) -> bool {
    let table = scan.split(" on ").nth(1).and_then(|rest| rest.split([' ', '(']).next());
    table.is_some_and(|table| SMALL.contains(&table))
}

#[test]
fn every_hot_statement_goes_by_an_index_and_sorts_nothing_that_grows() {
    let more = [
        "session_preload_libraries = 'auto_explain'",
        "auto_explain.log_min_duration = 0",
        "auto_explain.log_nested_statements = on",
        "log_min_messages = log",
        // Without new statistics, plans made for empty tables stay.
        "autovacuum = off",
    ];
    let settings = Settings { is_forgetful: true, more: more.map(str::to_owned).into(), ..Settings::default() };
    let cluster = Cluster::start(settings).unwrap();
    let database = cluster.database(None).unwrap();
    let store = std::sync::Arc::new(block_on(PostgresStore::connect(&database.socket_url(), Options::default())).unwrap());
    let mut held = fill(&store);
    finish(&store, 0..2_000);
    let grown = plans(&cluster.log().unwrap());
    let locks = grown.iter().rfind(|plan| plan.text.contains("FOR UPDATE OF r) AS l")).expect("runs were locked");
    assert!(locks.nodes.iter().any(|node| node.starts_with("Index Scan using runs_key")), "{:?}", locks.nodes);
    database.psql("ANALYZE").unwrap();
    let before = cluster.log().unwrap().len();
    work(&store, &mut held);
    let ended = || Delete::Expired { retention: Retention { default: Duration::ZERO, ..Retention::default() }, limit: 50 };
    assert_eq!(block_on(store.delete_runs(ended())).unwrap(), 50);
    let log = cluster.log().unwrap();
    let plans = plans(&log[before..]);
    let of = |word: &str| plans.iter().filter(|plan| plan.text.contains(word)).count();
    for word in [
        "onward.runs",
        "INSERT INTO onward.events",
        "onward.tasks",
        "WITH RECURSIVE walk",
        "w(qkey, count)",
        "onward.queue_keys",
        "s.kind = 'quota:'",
        "starts_with(r.kind",
        "onward.spent_days",
        "onward.idempotency",
        "onward.outbox",
        "DELETE FROM onward.blobs",
    ] {
        assert!(of(word) > 0, "no plan for {word} among {}", plans.len());
    }
    assert_eq!(wrong(&plans), "", "of {} plans", plans.len());
    assert_eq!(of("SELECT k.position, e.idx"), 5, "new records of many runs are read at once");
    // Without its index, the check finds retention.
    database.psql("DROP INDEX onward.runs_ended").unwrap();
    let before = log.len();
    block_on(store.delete_runs(ended())).unwrap();
    let plans = self::plans(&cluster.log().unwrap()[before..]);
    assert!(wrong(&plans).contains("on runs"), "{}", plans.len());
}

/// Renders the wrong plans.
fn wrong(plans: &[Plan]) -> String {
    let describe = |plan: &Plan| Some(format!("{}\n  in {}\n  {}\n", plan.wrong()?, plan.text, plan.nodes.join("\n  ")));
    plans.iter().filter_map(describe).collect()
}
