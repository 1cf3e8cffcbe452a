//! S28: texts from callers are data in ids, kinds, versions, names, attributes, filters and cursors, whatever they mean to a
//! database.
//!
//! The replies are compared with those of the memory store, which has no query language.

use std::sync::Arc;

use onward_core::event::SignalReceived;
use onward_core::run::{Input, NewRun};
use onward_core::task::TaskOptions;
use onward_core::{Attribute, AttributeMatch, Namespace, RunId, RunKey};

use super::harness::{Harness, approval, json, name, new_run, seconds, task_of, terminate, worker};
use crate::{ClaimTasks, Delete, DeletedQuery, MemoryStore, RunQuery, Store, TaskQuery, WaitQuery};

/// Texts that would end a literal, a statement or a pattern, name a parameter or a column, or be cast if they were part of a
/// query.
const TEXTS: [&str; 34] = [
    "'",
    "''",
    "\"",
    "`",
    "\\",
    "\\'",
    "';--",
    "' OR '1'='1",
    "' OR 1=1--",
    "\" OR \"\"=\"",
    "') OR ('a'='a",
    "1; DROP TABLE runs",
    "'; DROP TABLE runs; --",
    "'; DELETE FROM events; --",
    "' UNION SELECT head FROM runs --",
    "x' AND (SELECT 1 FROM pg_sleep(9)) = 1 --",
    "$1",
    "?1",
    ":id",
    "@ns",
    "$$",
    "$tag$ x $tag$",
    "%",
    "_",
    "a%b_c",
    "*",
    "NULL",
    "true",
    "0x1F",
    "-1",
    "created_at DESC",
    "/* x */",
    "E'\\x41'",
    "\u{2019} OR \u{ff07}1\u{ff07}=\u{ff07}1",
];

/// Texts that are invalid as names but allowed where callers may write any text.
const FREE: [&str; 7] = ["", "\0", "a\0b", "\n--\n", "\r\n", "\t", "\u{1b}[2J"];

fn key(text: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(text).unwrap())
}

/// Returns a run whose id, kind, version, attribute name and attribute value are the same text.
fn named(text: &str) -> NewRun {
    let mut run = new_run("x");
    run.key = key(text);
    run.started.kind = name(text);
    run.started.version = Some(name(text));
    run.started.attributes = vec![Attribute { name: name(text), value: text.to_owned().into() }];
    run
}

fn reference(harness: &Harness) -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(harness.clock.clone()))
}

/// Returns the ids of the matching runs, or the code of the refusal.
async fn found(store: &dyn Store, query: RunQuery) -> Result<Vec<String>, &'static str> {
    let page = store.list_runs(query).await.map_err(|error| error.code())?;
    Ok(page.runs.iter().map(|head| head.key.id.to_string()).collect())
}

pub async fn a_filter_finds_what_it_says_and_nothing_else(mut harness: Harness) {
    let oracle = reference(&harness);
    for text in TEXTS {
        for store in [harness.store(), oracle.clone()] {
            store.start_run(named(text), None).await.unwrap();
            store
                .start_run(NewRun { key: RunKey::new(Namespace::new(text).unwrap(), key("r").id), ..new_run("r") }, None)
                .await
                .unwrap();
        }
        harness.pass(seconds(1));
    }
    harness.reopen();
    for text in TEXTS {
        let attribute = |named: &str, value: &str| AttributeMatch::typed(name(named), value);
        let queries = [
            RunQuery { kind: Some(name(text)), ..Default::default() },
            RunQuery { versions: vec![Some(name(text))], ..Default::default() },
            RunQuery { versions: vec![None, Some(name(text))], ..Default::default() },
            RunQuery { attributes: vec![attribute(text, text)], ..Default::default() },
            RunQuery { attributes: vec![attribute(text, "x")], ..Default::default() },
            RunQuery { attributes: vec![attribute("x", text)], ..Default::default() },
            RunQuery { cursor: Some(text.to_owned()), ..Default::default() },
            RunQuery { cursor: Some(format!("9999999999999:{text}")), limit: 3, ..Default::default() },
            RunQuery { cursor: Some(format!("{text}:1")), ..Default::default() },
        ];
        for query in queries {
            let expected = found(&*oracle, query.clone()).await;
            assert_eq!(found(&*harness.store(), query.clone()).await, expected, "{query:?}");
        }
        let own = RunQuery { kind: Some(name(text)), ..Default::default() };
        assert_eq!(found(&*harness.store(), own).await, Ok(vec![text.to_owned()]));
        let theirs = RunQuery { namespace: Namespace::new(text).unwrap(), ..Default::default() };
        assert_eq!(found(&*harness.store(), theirs).await, Ok(vec!["r".to_owned()]));
        assert_eq!(harness.store().read_run(key(text), None).await.unwrap().unwrap().kind, name(text));
        assert_eq!(harness.store().read_run(key(&format!("{text} ")), None).await.unwrap(), None);
    }
    assert_eq!(harness.store().count_versions(Namespace::default()).await.unwrap().len(), TEXTS.len());
}

/// Attribute values and cursors may be any text, even one that a database cannot store as text.
pub async fn any_text_is_a_value_of_an_attribute(mut harness: Harness) {
    let oracle = reference(&harness);
    let texts = || FREE.into_iter().chain(TEXTS);
    for (number, text) in texts().enumerate() {
        let mut run = new_run(&format!("r{number}"));
        run.started.attributes = vec![Attribute { name: name("a"), value: text.to_owned().into() }];
        for store in [harness.store(), oracle.clone()] {
            store.start_run(run.clone(), None).await.unwrap();
        }
        harness.pass(seconds(1));
    }
    harness.reopen();
    for (number, text) in texts().enumerate() {
        let value = AttributeMatch { name: name("a"), values: vec![text.to_owned().into()] };
        let query = RunQuery { attributes: vec![value], ..Default::default() };
        assert_eq!(found(&*harness.store(), query).await, Ok(vec![format!("r{number}")]), "{text:?}");
        for cursor in [text.to_owned(), format!("9999999999999:{text}"), format!("1000:{text}")] {
            let query = RunQuery { cursor: Some(cursor), ..Default::default() };
            let expected = found(&*oracle, query.clone()).await;
            assert_eq!(found(&*harness.store(), query.clone()).await, expected, "{query:?}");
        }
    }
}

/// Signals, their ids, tasks, approvals and deletions of runs with such ids affect these runs only.
pub async fn what_is_done_to_a_run_is_done_to_no_other(mut harness: Harness) {
    for text in TEXTS {
        let mut held = harness.start_held_as(NewRun { key: key(text), ..new_run("x") }).await;
        harness
            .commit(
                &mut held,
                vec![approval(0, None), task_of(text, 1, TaskOptions { queue: Some(name(text)), ..Default::default() })],
            )
            .await;
    }
    harness.reopen();
    for text in TEXTS {
        let received = SignalReceived { name: name(text), payload: json("1"), signal_id: Some(text.to_owned()), sender: None };
        let store = harness.store();
        let first = store.append_input(key(text), Input::signal(received.clone())).await.unwrap();
        let again = store.append_input(key(text), Input::signal(received)).await.unwrap();
        assert_eq!((first.index, first.repeated, again.repeated), (again.index, false, true), "{text}");
        let waits = store.list_waits(WaitQuery { run: Some(key(text)), ..Default::default() }).await.unwrap();
        assert_eq!(waits.iter().map(|wait| &wait.run).collect::<Vec<_>>(), [&key(text)]);
        let tasks = store.list_tasks(TaskQuery { run: Some(key(text)), ..Default::default() }).await.unwrap();
        assert_eq!(tasks.iter().map(|task| &task.id.run).collect::<Vec<_>>(), [&key(text)]);
        let (queues, kinds) = (vec![Some(name(text))], Arc::new(vec![name(text)]));
        let request =
            ClaimTasks { worker: worker(text), namespace: Namespace::default(), queues, kinds, limit: 99, lease: seconds(30) };
        let claimed = store.claim_tasks(request).await.unwrap();
        assert_eq!(claimed.iter().map(|task| &task.id.run).collect::<Vec<_>>(), [&key(text)]);
    }
    for (gone, text) in TEXTS.into_iter().enumerate() {
        harness.store().append_input(key(text), terminate()).await.unwrap();
        let delete = Delete::Run { key: key(text), reason: text.to_owned() };
        assert_eq!(harness.store().delete_runs(delete).await.unwrap(), 1, "{text}");
        let page = harness.store().list_runs(RunQuery { limit: 1_000, ..Default::default() }).await.unwrap();
        assert_eq!(page.runs.len(), TEXTS.len() - gone - 1, "only {text} is deleted");
        let query = DeletedQuery { run: Some(key(text)), ..Default::default() };
        let deleted = harness.store().list_deleted(query).await.unwrap();
        assert_eq!(deleted.iter().map(|run| run.reason.as_str()).collect::<Vec<_>>(), [text]);
        assert_eq!(harness.store().read_run(key(text), None).await.unwrap(), None, "{text}");
    }
}
