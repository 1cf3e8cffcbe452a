//! Lists: every row once, in order, over pages.

use onward_core::event::{AttributeSet, OnParentClose, ParentLink, TaskScheduled};
use onward_core::run::{NewRun, WaitKind};
use onward_core::task::{TaskCount, TaskOptions};
use onward_core::{Attribute, AttributeMatch, AttributeValue, CallId, Event, Hash, Name, Namespace, Payload, RunKey, Status, Timestamp};

use super::harness::{Harness, approval, call_id, key, name, namespaces, new_run, new_run_of, refused, seconds, task};
use crate::{OpenCounts, RunPage, RunQuery, WaitQuery, cursor_after};

pub async fn runs_are_listed_newest_first_in_pages(mut harness: Harness) {
    for number in 0..5 {
        harness.start(&format!("r{number}")).await;
        harness.pass(seconds(1));
    }
    harness.reopen();
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let query = RunQuery { limit: 2, cursor, ..Default::default() };
        let page = harness.store().list_runs(query).await.unwrap();
        // The format of cursors is the same in every store, so that lists over several shards can continue in each.
        assert_eq!(page.next, page.next.as_ref().and(page.runs.last()).map(cursor_after));
        pages.push(ids(&page));
        // A run that starts between two pages shifts nothing.
        harness.start(&format!("s{}", pages.len())).await;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages, [vec!["r4", "r3"], vec!["r2", "r1"], vec!["r0"]]);
}

pub async fn runs_are_filtered_by_kind_status_and_time(harness: Harness) {
    harness.complete("done").await;
    harness.pass(seconds(1));
    let middle = harness.now();
    harness.start_held("held").await;
    harness.pass(seconds(1));
    let late = harness.now();
    harness.store().start_run(new_run_of("parcel", "new"), None).await.unwrap();
    let check = |query: RunQuery| {
        let store = harness.store();
        async move { ids(&store.list_runs(query).await.unwrap()) }
    };
    assert_eq!(check(RunQuery { kind: Some(name("parcel")), ..Default::default() }).await, ["new"]);
    assert_eq!(check(RunQuery { statuses: vec![Status::Running], ..Default::default() }).await, ["held"]);
    let statuses = vec![Status::Pending, Status::Completed];
    assert_eq!(check(RunQuery { statuses, ..Default::default() }).await, ["new", "done"]);
    assert_eq!(check(RunQuery { created_from: Some(middle), ..Default::default() }).await, ["new", "held"]);
    assert_eq!(check(RunQuery { created_until: Some(late), ..Default::default() }).await, ["held", "done"]);
    let namespace = Namespace::new("other").unwrap();
    assert_eq!(check(RunQuery { namespace, ..Default::default() }).await, [""; 0]);
}

pub async fn a_foreign_cursor_is_refused(harness: Harness) {
    let query = RunQuery { cursor: Some("yesterday".to_owned()), ..Default::default() };
    refused(harness.store().list_runs(query).await, "cursor_invalid");
}

pub async fn questions_are_listed_oldest_first(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let mut other = harness.start_held("a").await;
    harness.commit(&mut held, vec![approval(7, None)]).await;
    harness.pass(seconds(1));
    harness.commit(&mut other, vec![approval(1, None)]).await;
    harness.pass(seconds(1));
    harness.commit(&mut held, vec![approval(3, None)]).await;
    harness.reopen();
    assert_eq!(harness.waits().await, [call_id(7), call_id(1), call_id(3)]);
    let query = WaitQuery { run: Some(key("r")), limit: 1, ..Default::default() };
    let waits = harness.store().list_waits(query).await.unwrap();
    assert_eq!((waits.len(), &waits[0].call_id, &waits[0].run, waits[0].title.as_str()), (1, &call_id(7), &key("r"), "Refund?"));
    let query = WaitQuery { kind: Some(WaitKind::Promise), ..Default::default() };
    assert_eq!(harness.store().list_waits(query).await.unwrap(), []);
}

/// Root runs are compared exactly; a root id of 255 bytes is truncated to 200.
pub async fn questions_of_a_family_are_listed_together(mut harness: Harness) {
    let long = "a".repeat(255);
    let below = |id: &str| onward_core::reopen::child_id(&key(id).id, 0, &call_id(0)).to_string();
    let ids = ["r".to_owned(), below("r"), below(&below("r")), "r2".to_owned(), "R/1".to_owned(), long.clone(), below(&long)];
    for id in &ids {
        let mut held = harness.start_held(id).await;
        harness.commit(&mut held, vec![approval(0, None)]).await;
        harness.pass(seconds(1));
    }
    harness.reopen();
    for (id, expected) in [("r", &ids[..3]), (&ids[2], &ids[..3]), ("r2", &ids[3..4]), (&long, &ids[5..])] {
        let query = WaitQuery { run: Some(key(id)), below: true, ..Default::default() };
        let waits = harness.store().list_waits(query).await.unwrap();
        assert_eq!(waits.iter().map(|wait| wait.run.id.to_string()).collect::<Vec<_>>(), expected, "query for {id}");
        let query = WaitQuery { run: Some(key(id)), ..Default::default() };
        assert_eq!(harness.store().list_waits(query).await.unwrap().len(), 1);
    }
}

fn ids(page: &RunPage) -> Vec<String> {
    page.runs.iter().map(|head| head.key.id.to_string()).collect()
}

fn attribute(name_: &str, value: impl Into<AttributeValue>) -> Attribute {
    Attribute { name: name(name_), value: value.into() }
}

fn found_by(name_: &str, text: &str) -> RunQuery {
    RunQuery { attributes: vec![AttributeMatch::typed(name(name_), text)], ..Default::default() }
}

async fn start_with(harness: &Harness, id: &str, version: Option<&str>, attributes: Vec<Attribute>) {
    let mut run = new_run(id);
    run.started.version = version.map(name);
    run.started.attributes = attributes;
    harness.store().start_run(run, None).await.unwrap();
    harness.pass(seconds(1));
}

pub async fn runs_are_filtered_by_version_and_attributes(mut harness: Harness) {
    start_with(&harness, "a", None, vec![attribute("customer", "42"), attribute("express", true)]).await;
    start_with(&harness, "b", Some("v1"), vec![attribute("customer", 42)]).await;
    start_with(&harness, "c", Some("v2"), vec![attribute("customer", "43"), attribute("due", Timestamp(1_000))]).await;
    harness.reopen();
    let store = harness.store();
    let check = |query: RunQuery| {
        let store = store.clone();
        async move { ids(&store.list_runs(query).await.unwrap()) }
    };
    assert_eq!(check(found_by("customer", "42")).await, ["b", "a"]);
    assert_eq!(check(found_by("express", "true")).await, ["a"]);
    assert_eq!(check(found_by("express", "false")).await, [""; 0]);
    assert_eq!(check(found_by("due", "1970-01-01T00:00:01Z")).await, ["c"]);
    assert_eq!(check(found_by("nobody", "42")).await, [""; 0]);
    let only = AttributeMatch { name: name("customer"), values: vec![42.into()] };
    assert_eq!(check(RunQuery { attributes: vec![only], ..Default::default() }).await, ["b"]);
    let versions = |versions: &[Option<&str>]| RunQuery {
        versions: versions.iter().map(|version| version.map(name)).collect(),
        ..Default::default()
    };
    assert_eq!(check(versions(&[Some("v1")])).await, ["b"]);
    assert_eq!(check(versions(&[None, Some("v2")])).await, ["c", "a"]);
    let both = RunQuery { versions: vec![Some(name("v1"))], ..found_by("customer", "42") };
    assert_eq!(check(both).await, ["b"]);
    let first = store.list_runs(RunQuery { limit: 1, ..found_by("customer", "42") }).await.unwrap();
    assert_eq!(ids(&first), ["b"]);
    assert_eq!(check(RunQuery { cursor: first.next, ..found_by("customer", "42") }).await, ["a"]);
}

pub async fn the_children_of_a_run_are_listed_newest_first(mut harness: Harness) {
    let parent = |id: &str| {
        let (run, on_parent_close) = (key(id), OnParentClose::Abandon);
        Some(ParentLink { run, generation: 0, call_id: call_id(0), on_parent_close, incarnation: None, is_spawned: false })
    };
    for (id, of) in [("a", None), ("b", None), ("a/1", parent("a")), ("a/2", parent("a")), ("b/1", parent("b"))] {
        let mut run = new_run(id);
        run.started.parent = of;
        harness.store().start_run(run, None).await.unwrap();
        harness.pass(seconds(1));
    }
    harness.reopen();
    let children = RunQuery { parent: Some(key("a")), ..Default::default() };
    let found = harness.store().list_runs(children.clone()).await.unwrap();
    assert_eq!((ids(&found), found.next), (vec!["a/2".to_owned(), "a/1".to_owned()], None));
    let first = harness.store().list_runs(RunQuery { limit: 1, ..children.clone() }).await.unwrap();
    assert_eq!(ids(&first), ["a/2"]);
    let rest = harness.store().list_runs(RunQuery { cursor: first.next, ..children.clone() }).await.unwrap();
    assert_eq!((ids(&rest), rest.next), (vec!["a/1".to_owned()], None));
    let running = RunQuery { statuses: vec![Status::Running], ..children };
    assert!(harness.store().list_runs(running).await.unwrap().runs.is_empty());
}

pub async fn what_a_run_is_found_by_changes_with_its_commits(mut harness: Harness) {
    let set = |ordinal, name_: &str, value: Option<AttributeValue>| -> Event {
        AttributeSet { call_id: super::harness::call_id(ordinal), name: name(name_), value }.into()
    };
    let mut run = new_run("r");
    run.started.attributes = vec![attribute("stage", "new")];
    let mut held = harness.start_held_as(run).await;
    harness.commit(&mut held, vec![set(0, "stage", Some("paid".into())), set(1, "items", Some(3.into()))]).await;
    harness.reopen();
    let found = async |harness: &Harness, name_: &str, text: &str| {
        harness.store().list_runs(found_by(name_, text)).await.unwrap().runs.len()
    };
    assert_eq!(
        [found(&harness, "stage", "new").await, found(&harness, "stage", "paid").await, found(&harness, "items", "3").await],
        [0, 1, 1]
    );
    assert_eq!(harness.head("r").await.attributes, [attribute("items", 3), attribute("stage", "paid")]);
    harness.check_run(&super::harness::key("r")).await;
    harness.append("r", super::harness::signal(None)).await.unwrap();
    let mut held = harness.regain(&held).await;
    harness.commit(&mut held, vec![set(2, "stage", None), super::harness::completed()]).await;
    harness.reopen();
    assert_eq!([found(&harness, "stage", "paid").await, found(&harness, "items", "3").await], [0, 1]);
    harness.store().delete_runs(crate::Delete::Run { key: super::harness::key("r"), reason: String::new() }).await.unwrap();
    assert_eq!(found(&harness, "items", "3").await, 0);
    let long = set(0, "stage", Some("x".repeat(256).into()));
    let held = harness.start_held("s").await;
    refused(harness.store().commit(held.commit(vec![long])).await, "commit_malformed");
}

pub async fn open_runs_are_counted_by_version(harness: Harness) {
    start_with(&harness, "a", None, Vec::new()).await;
    start_with(&harness, "b", Some("v1"), Vec::new()).await;
    start_with(&harness, "c", Some("v1"), Vec::new()).await;
    start_with(&harness, "d", Some("v2"), Vec::new()).await;
    harness.append("d", super::harness::terminate()).await.unwrap();
    let counts = harness.store().count_versions(Namespace::default()).await.unwrap();
    let shown: Vec<_> = counts.iter().map(|count| (count.version.as_ref().map(Name::as_str), count.open)).collect();
    assert_eq!(shown, [(None, 1), (Some("v1"), 2)]);
    assert_eq!(harness.store().count_versions(Namespace::new("other").unwrap()).await.unwrap(), []);
}

pub async fn open_runs_and_tasks_of_all_namespaces_are_counted(harness: Harness) {
    assert_eq!(harness.store().count_open().await.unwrap(), OpenCounts::default());
    harness.complete("done").await;
    let mut held = harness.start_held("held").await;
    harness.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
    let kind = held.head.kind.clone();
    let runs = async || {
        let counts = harness.store().count_open().await.unwrap();
        counts.runs.into_iter().map(|((kind, status), count)| (kind.to_string(), status, count)).collect::<Vec<_>>()
    };
    let own = |status: Status, count: u64| (kind.to_string(), status, count);
    let status = harness.store().read_run(key("held"), None).await.unwrap().unwrap().status;
    assert_eq!(runs().await, [own(status, 1)], "a closed run is not counted, a leased one has the status that callers see");
    for namespace in namespaces() {
        let key = RunKey::new(namespace.clone(), key("new").id);
        harness.store().start_run(NewRun { key, ..new_run_of(kind.as_str(), "new") }, None).await.unwrap();
    }
    harness.store().start_run(new_run_of("parcel", "p"), None).await.unwrap();
    let mut expected = vec![own(Status::Pending, 2), own(status, 1), ("parcel".to_owned(), Status::Pending, 1)];
    expected.sort();
    assert_eq!(runs().await, expected, "runs of all namespaces");
    let counts = harness.store().count_open().await.unwrap();
    let [of_default, of_all] = [harness.store().count_tasks(Namespace::default()).await.unwrap(), counts.tasks];
    assert_eq!((of_all.len(), &of_all), (1, &of_default));
    harness.append("p", super::harness::pause()).await.unwrap();
    assert!(runs().await.contains(&("parcel".to_owned(), Status::Paused, 1)), "{:?}", runs().await);
    harness.append("p", super::harness::terminate()).await.unwrap();
    assert!(runs().await.iter().all(|(kind, ..)| kind != "parcel"));
}

pub async fn open_tasks_are_counted_by_queue_and_kind(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let schedule = |call_id: u32, queue: Option<&str>, kind: &str| {
        let options = TaskOptions { queue: queue.map(|queue| Name::new(queue).unwrap()), ..TaskOptions::default() };
        let (call_id, kind, input) = (CallId::root(call_id), Name::new(kind).unwrap(), Payload::null());
        Event::from(TaskScheduled { call_id, kind, input_hash: Hash::of(&input), input, options })
    };
    let events =
        vec![schedule(0, None, "mail"), schedule(1, None, "mail"), schedule(2, Some("slow"), "mail"), schedule(3, None, "bill")];
    harness.commit(&mut held, events).await;
    let since = harness.now();
    harness.pass(seconds(1));
    let claimed = harness.claim_tasks("w", 1).await;
    assert_eq!(claimed.len(), 1);
    harness.reopen();
    let counts = harness.store().count_tasks(Namespace::default()).await.unwrap();
    let shown: Vec<_> = counts
        .iter()
        .map(|count| (count.queue.as_ref().map(Name::as_str), count.kind.as_str(), count.queued, count.running))
        .collect();
    assert_eq!(shown, [(None, "bill", 1, 0), (None, "mail", 1, 1), (Some("slow"), "mail", 1, 0)]);
    assert!(counts.iter().all(|count| count.oldest_at == Some(since) && count.quarantined == 0), "{counts:?}");
    harness.append("r", super::harness::pause()).await.unwrap();
    let paused = harness.store().count_tasks(Namespace::default()).await.unwrap();
    let queued = |counts: &[TaskCount]| counts.iter().map(|count| count.queued).collect::<Vec<_>>();
    assert_eq!(queued(&paused), queued(&counts), "tasks of a paused run are counted as queued");
    assert_eq!(harness.store().count_tasks(Namespace::new("other").unwrap()).await.unwrap(), []);
}
