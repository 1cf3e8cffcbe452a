//! Lists: every row once, in order, over pages.

use onward_core::run::WaitKind;
use onward_core::{Namespace, Status};

use super::kit::{Kit, approval, key, name, new_run_of, place, refused, seconds};
use crate::{RunPage, RunQuery, WaitQuery};

pub async fn runs_are_listed_newest_first_in_pages(mut kit: Kit) {
    for number in 0..5 {
        kit.start(&format!("r{number}")).await;
        kit.pass(seconds(1));
    }
    kit.reopen();
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let query = RunQuery { limit: 2, cursor, ..Default::default() };
        let page = kit.store().list_runs(query).await.unwrap();
        pages.push(ids(&page));
        // A newcomer between two pages moves nothing.
        kit.start(&format!("s{}", pages.len())).await;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages, [vec!["r4", "r3"], vec!["r2", "r1"], vec!["r0"]]);
}

pub async fn runs_are_filtered_by_kind_status_and_time(kit: Kit) {
    kit.complete("done").await;
    kit.pass(seconds(1));
    let middle = kit.now();
    kit.start_held("held").await;
    kit.pass(seconds(1));
    let late = kit.now();
    kit.store().start_run(new_run_of("parcel", "new"), None).await.unwrap();
    let check = |query: RunQuery| {
        let store = kit.store();
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

pub async fn a_foreign_cursor_is_refused(kit: Kit) {
    let query = RunQuery { cursor: Some("yesterday".to_owned()), ..Default::default() };
    refused(kit.store().list_runs(query).await, "cursor_invalid");
}

pub async fn questions_are_listed_oldest_first(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    let mut other = kit.start_held("a").await;
    kit.commit(&mut held, vec![approval(7, None)]).await;
    kit.pass(seconds(1));
    kit.commit(&mut other, vec![approval(1, None)]).await;
    kit.pass(seconds(1));
    kit.commit(&mut held, vec![approval(3, None)]).await;
    kit.reopen();
    assert_eq!(kit.waits().await, [place(7), place(1), place(3)]);
    let query = WaitQuery { run: Some(key("r")), limit: 1, ..Default::default() };
    let waits = kit.store().list_waits(query).await.unwrap();
    assert_eq!((waits.len(), &waits[0].place, &waits[0].run, waits[0].title.as_str()), (1, &place(7), &key("r"), "Refund?"));
    let query = WaitQuery { kind: Some(WaitKind::Promise), ..Default::default() };
    assert_eq!(kit.store().list_waits(query).await.unwrap(), []);
}

fn ids(page: &RunPage) -> Vec<String> {
    page.runs.iter().map(|head| head.key.id.to_string()).collect()
}
