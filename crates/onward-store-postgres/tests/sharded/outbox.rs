//! SD7: outbox messages between databases.

use onward_core::event::SignalSent;
use onward_core::run::OutboxMessage;
use onward_core::{CallId, CommitId, Event, Index, Name, Payload, RunId, WorkerId};
use onward_store::conformance::block_on;
use onward_store::{ClaimedRun, Store};

use crate::faulty::{Site, id_in, key};
use crate::placement::new_run;

/// Starts a run that sends a signal to each of `receivers`.
async fn send(site: &Site, id: &str, receivers: &[String]) {
    let worker = WorkerId::new("w").unwrap();
    let ClaimedRun { head, .. } = site.store.start_run(new_run(id), Some(worker)).await.unwrap().claimed.unwrap();
    let signal = |(ordinal, to): (usize, &String)| -> Event {
        let (call_id, to) = (CallId::root(ordinal as u32), RunId::new(to).unwrap());
        SignalSent { call_id, to, name: Name::new("paid").unwrap(), payload: Payload::null() }.into()
    };
    let commit = onward_core::run::Commit {
        key: head.key,
        generation: 0,
        epoch: head.epoch,
        n: 0,
        commit_id: CommitId(1),
        horizon: Index(0),
        waits: true,
        events: receivers.iter().enumerate().map(signal).collect(),
        end_over_unread: false,
        is_while_paused: false,
        carries: Default::default(),
    };
    site.store.commit(commit).await.unwrap();
}

fn receivers(outbox: &[(onward_store::OutboxId, OutboxMessage)]) -> Vec<String> {
    outbox.iter().map(|(_, delivery)| delivery.receiver().id.to_string()).collect()
}

#[test]
fn news_of_all_databases_come_in_turn_and_are_finished_where_they_are() {
    let site = Site::new();
    block_on(async {
        let to: Vec<String> = (0..10).map(|number| id_in(0, 100 + number)).collect();
        for database in 0..3 {
            send(&site, &id_in(database, 0), &to).await;
        }
        let outbox = site.store.outbox_messages(6).await.unwrap();
        let mut first_two = [&to[0], &to[0], &to[0], &to[1], &to[1], &to[1]].map(String::clone).to_vec();
        first_two.sort();
        let mut found = receivers(&outbox);
        found.sort();
        assert_eq!(found, first_two, "two of each, in order");
        site.store.finish_deliveries(outbox.iter().map(|(id, _)| *id).collect()).await.unwrap();
        let mut left = 0;
        for database in &site.databases {
            let rest = database.inner.outbox_messages(100).await.unwrap();
            assert_eq!(receivers(&rest), to[2..]);
            left += rest.len();
        }
        assert_eq!(site.store.outbox_messages(100).await.unwrap().len(), left);
    });
}

#[test]
fn news_for_a_database_that_is_down_wait_and_hide_nothing() {
    let site = Site::new();
    block_on(async {
        let mut to: Vec<String> = (0..200).map(|_| id_in(1, 50)).collect();
        to.push(id_in(2, 50));
        send(&site, &id_in(0, 0), &to).await;
        assert_eq!(receivers(&site.store.outbox_messages(10).await.unwrap()), to[..10]);
        site.databases[1].refuse(true);
        site.store.expire(10).await.unwrap();
        assert_eq!(receivers(&site.store.outbox_messages(10).await.unwrap()), [id_in(2, 50)]);
        site.databases[1].refuse(false);
        site.until([true; 3]);
        assert_eq!(site.store.outbox_messages(1_000).await.unwrap().len(), 201);
    });
}

#[test]
fn a_broadcast_is_sent_once() {
    let site = Site::new();
    block_on(async {
        site.store.broadcast(vec![1]).await.unwrap();
        assert_eq!(site.databases.iter().map(|database| database.broadcast_count()).collect::<Vec<_>>(), [1, 0, 0]);
        site.databases[0].refuse(true);
        // At most once: it is unknown whether the first database has sent it.
        site.store.broadcast(vec![2]).await.unwrap_err();
        site.store.broadcast(vec![3]).await.unwrap();
        assert_eq!(site.databases.iter().map(|database| database.broadcast_count()).collect::<Vec<_>>(), [1, 1, 0]);
        assert!(site.store.read_run(key(&id_in(1, 0)), None).await.unwrap().is_none());
    });
}
