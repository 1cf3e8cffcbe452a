//! L23 over real servers: two of them share a database, their clocks are an hour apart, and they are killed in turn while a schedule
//! fires.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use onward::{Error, Onward, Overlap, Schedule, Timestamp};
use onward_testkit::{Cluster, OWNER, Settings};

use super::fleet::Fleet;
use crate::kit::run_over;

/// Slots of the past that are filled in; each second of the present is one more.
const PAST: u64 = 2_000;

/// Time to finish, after which something hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// Delay between two kills.
const PACE: Duration = Duration::from_millis(900);

const FLOW: &str = "flow: noop\nsteps:\n  - { name: done, set: { x: 1 } }\n";

/// Sends a request to one server after the other until it succeeds.
async fn insist<T>(clients: &[Onward], call: impl AsyncFn(&Onward) -> Result<T, Error>) -> T {
    let begun = Instant::now();
    let mut failure = String::new();
    while begun.elapsed() < PATIENCE {
        for client in clients {
            match tokio::time::timeout(Duration::from_secs(5), call(client)).await {
                Ok(Ok(reply)) => return reply,
                Ok(Err(error)) => failure = error.to_string(),
                Err(_) => failure = "no reply".to_owned(),
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no server replies: {failure}");
}

async fn connect(urls: &[String]) -> Vec<Onward> {
    let mut clients = Vec::new();
    for url in urls {
        let begun = Instant::now();
        clients.push(loop {
            match Onward::connect(url).start().await {
                Ok(client) => break client,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
    }
    clients
}

/// Kills the servers in turn until no backfill is left and no run is running.
async fn storm(fleet: &mut Fleet, clients: &[Onward]) {
    let begun = Instant::now();
    let (mut killed, mut turn) = (Instant::now(), 0);
    loop {
        assert!(begun.elapsed() < PATIENCE, "the schedule does not end");
        if killed.elapsed() > PACE && turn < 12 {
            fleet.servers[turn % 2].kill(Duration::from_millis(100));
            (killed, turn) = (Instant::now(), turn + 1);
        }
        fleet.tend();
        let past = insist(clients, async |client| client.schedule("past")?.read().await).await;
        if turn >= 12 && past.backfills.is_empty() && past.running.is_empty() && past.buffered.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the times at which runs with this prefix were created, by id.
fn created(cluster: &Cluster, prefix: &str) -> BTreeMap<String, u64> {
    let sql = format!("SELECT id || ' ' || created FROM onward.runs WHERE id LIKE '{prefix}@%'");
    let rows = cluster.psql("postgres", &sql).unwrap();
    rows.lines().filter_map(|line| line.rsplit_once(' ')).map(|(id, at)| (id.to_owned(), at.parse().unwrap())).collect()
}

#[test]
fn each_slot_starts_once_and_none_early_whatever_servers_die() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(Settings::default()).unwrap();
    let url = format!("postgres://{OWNER}@127.0.0.1:{}/postgres", cluster.port());
    let mut fleet = Fleet::start(2, &url, directory.path());
    let urls = fleet.urls();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clients = connect(&urls).await;
        let file = directory.path().join("noop.yaml");
        std::fs::write(&file, FLOW).unwrap();
        let applied = run_over(&urls[0], ["flow", "apply", file.to_str().unwrap()]);
        assert_eq!(applied.code, 0, "{}", applied.err);
        let every = |span| Schedule::every(span).overlap(Overlap::AllowAll).of("noop").force();
        insist(&clients, async |client| client.put_schedule("live", every(Duration::from_secs(1))).await).await;
        insist(&clients, async |client| client.put_schedule("past", every(Duration::from_secs(60))).await).await;
        let from = Timestamp::parse("2020-01-01T00:00:00Z").unwrap();
        let until = from.after(Duration::from_secs(60 * PAST));
        let fill =
            async |client: &Onward| client.schedule("past")?.backfill(from, until).id("once").overlap(Overlap::AllowAll).await;
        insist(&clients, fill).await;
        storm(&mut fleet, &clients).await;
        fleet.heal();
        insist(&clients, async |client| client.schedule("live")?.pause("the end").await).await;
        let live = insist(&clients, async |client| client.schedule("live")?.read().await).await;
        let past = insist(&clients, async |client| client.schedule("past")?.read().await).await;
        let filled = created(&cluster, "past").into_iter().filter(|(id, _)| id.as_str() < "past@2021").count() as u64;
        assert_eq!((filled, past.totals.failed), (PAST, 0));
        // The database has the right time: one server was an hour ahead, the other was not.
        let begun = created(&cluster, "live");
        for (id, at) in &begun {
            let slot = Timestamp::parse(id.strip_prefix("live@").unwrap()).unwrap();
            assert!(slot.0 <= *at, "{id} was started {} ms early", slot.0 - at);
        }
        assert!(begun.len() as u64 <= live.totals.started && live.totals.started > 5, "{:?}", live.totals);
    });
}
