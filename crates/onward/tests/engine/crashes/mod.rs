//! The crash matrix of agents: stories in which one of two processes, or the server between them, dies before or after every store call
//! that can matter. The conversations, the tasks with their results, what runs said to each other and what the tools did equal those of a
//! story in which nobody dies. Models are called once for each answer, but for attempts whose worker died before anybody had recorded what
//! came of them; those are in the totals of the run.

mod conversation;
mod delegation;
mod dying;
mod errand;
mod stage;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conversation::Conversation;
use delegation::Delegation;
use dying::Death;
use errand::Errand;
use onward::prelude::*;
use onward::{Builder, Event, RunQuery, Status};
use onward_core::conversation::{entries_of, leaf_of};
use onward_core::spend::SpendTotals;
use onward_store_embedded::EmbeddedStore;
use stage::{Actor, Begun, Life, Place, Stage, insist};

/// How many stories are played at a time.
const AT_ONCE: usize = 6;

/// How long a story may take on a machine that has other things to do.
const ENDS_IN: Duration = Duration::from_secs(60);

/// What is played: by two processes, and by somebody outside.
trait Story: Clone + 'static {
    /// How often models answer when nobody dies.
    const ANSWERS: u64;

    async fn new() -> Self;

    /// What the first process has code for; the run of the story is its own.
    fn first(&self, builder: Builder) -> Builder;

    /// What the second process has code for.
    fn second(&self, builder: Builder) -> Builder;

    /// What a person does until all is over.
    async fn talk(&self, client: &Onward, first: &Actor);

    /// How often models were called.
    fn asked(&self) -> u64 {
        0
    }

    /// How many payments there were in the world outside.
    fn paid(&self) -> usize {
        0
    }

    /// What must be left when nobody dies.
    fn judge(left: &Left);
}

/// Who dies where: one after the other.
#[derive(Debug, Clone, Default)]
struct Plan {
    first: Vec<Death>,
    second: Vec<Death>,
    server: Vec<Death>,
}

/// How a story was played.
struct Played {
    left: Left,
    /// How many calls the two processes and the server made.
    calls: [u64; 3],
    deaths: u32,
}

/// What is left when all is over.
#[derive(Debug, PartialEq)]
struct Left {
    /// All runs there are, by their kinds: what was spawned has another name each time.
    runs: Vec<LeftRun>,
    paid: usize,
}

#[derive(Debug, PartialEq)]
struct LeftRun {
    kind: String,
    status: Status,
    /// Names the whole conversation.
    leaf: Option<String>,
    entries: usize,
    /// The tasks, each with its one result.
    tasks: Vec<(String, String)>,
    /// The signals, in the order in which they came.
    heard: Vec<String>,
    abandoned: usize,
}

/// One of the processes.
fn actor(stage: &Stage, deaths: &[Death], code: impl Fn(Builder) -> Builder + Clone + 'static) -> Actor {
    let place = stage.clone();
    let begin = move |death| -> Begun {
        let (place, code) = (place.clone(), code.clone());
        Box::pin(async move {
            let (builder, store) = place.builder(death).await;
            let engine = code(builder).start().await.unwrap();
            Life { engine: Some(engine), store, threads: None }
        })
    };
    Actor::new(deaths.to_vec(), begin)
}

/// Plays the story once.
async fn play<S: Story>(stage: Stage, plan: Plan) -> Played {
    let story = S::new().await;
    let [one, other] = [story.clone(), story.clone()];
    let first = actor(&stage, &plan.first, move |builder| one.first(builder));
    let second = actor(&stage, &plan.second, move |builder| other.second(builder));
    let server = stage.server(plan.server.clone());
    let serving = async {
        match &server {
            Some(server) => server.live().await,
            None => std::future::pending().await,
        }
    };
    let told = async {
        let client = stage.builder(None).await.0.start().await.unwrap();
        story.talk(&client, &first).await;
        insist(|| look(&client)).await
    };
    let (runs, spend) = tokio::select! {
        seen = told => seen,
        () = first.live() => unreachable!(),
        () = second.live() => unreachable!(),
        () = serving => unreachable!(),
    };
    let actors = [Some(&first), Some(&second), server.as_ref()];
    let deaths = actors.iter().flatten().map(|actor| actor.deaths()).sum();
    let asked = story.asked();
    assert!(asked <= spend.attempts, "every call of the model is in the totals: {asked} calls, {spend:?}");
    assert!(spend.attempts - spend.unknown >= S::ANSWERS, "every answer is, with its cost: {spend:?}");
    let left = Left { runs, paid: story.paid() };
    Played { left, calls: actors.map(|actor| actor.map_or(0, Actor::calls)), deaths }
}

/// What is left of all runs, and what they have cost.
async fn look(client: &Onward) -> Result<(Vec<LeftRun>, SpendTotals), onward::Error> {
    let (mut runs, mut spend) = (Vec::new(), SpendTotals::default());
    for head in client.list_runs(RunQuery::default()).await?.runs {
        spend = head.spend.map_or(spend, |own| spend.plus(&own));
        runs.push(look_at(client, head.key.id.as_str()).await?);
    }
    runs.sort_by(|a: &LeftRun, b: &LeftRun| a.kind.cmp(&b.kind));
    Ok((runs, spend))
}

async fn look_at(client: &Onward, id: &str) -> Result<LeftRun, onward::Error> {
    let run = client.run::<serde_json::Value>(id)?;
    let head = run.view().await?.head;
    let (mut leaf, mut entries, mut tasks, mut heard, mut abandoned) = (None, 0, Vec::new(), Vec::new(), 0);
    let text = |payload: &onward::Payload| String::from_utf8_lossy(payload.data()).into_owned();
    for generation in 0..=head.generation {
        let log = run.log_of(generation).await?;
        leaf = leaf_of(&log).or(leaf);
        entries += entries_of(generation, &log).iter().filter(|entry| !entry.is_aside && !entry.is_abandoned).count();
        let mut open = BTreeMap::new();
        for event in log.iter().flat_map(|record| &record.events) {
            match event {
                Event::TaskScheduled(event) => drop(open.insert(event.place.clone(), event.kind.to_string())),
                Event::TaskCompleted(event) => {
                    let kind = open.remove(&event.place).expect("a task has one result");
                    tasks.push((kind, text(&event.output)));
                }
                Event::SignalReceived(event) => heard.push(text(&event.payload)),
                Event::SegmentAbandoned(_) => abandoned += 1,
                _ => {}
            }
        }
        assert!(open.is_empty(), "every task has a result: {open:?}");
    }
    tasks.sort();
    let (kind, leaf) = (head.kind.to_string(), leaf.map(|leaf| leaf.to_string()));
    Ok(LeftRun { kind, status: head.status, leaf, entries, tasks, heard, abandoned })
}

/// Plays every plan on a stage of its own, several at a time, and compares.
async fn matrix<S: Story>(at_once: usize, plans: Vec<Plan>, stage: impl Fn() -> Stage) {
    let expected = play::<S>(stage(), Plan::default()).await.left;
    let planned: usize = plans.iter().map(|plan| plan.first.len() + plan.second.len() + plan.server.len()).sum();
    let deaths = AtomicU32::new(0);
    let plans = Mutex::new(plans);
    let player = async |_| {
        loop {
            let Some(plan) = plans.lock().unwrap().pop() else { return };
            let stage = stage();
            let Ok(played) = tokio::time::timeout(ENDS_IN, play::<S>(stage.clone(), plan.clone())).await else {
                panic!("it does not end: {plan:?}\n{}", stage.show().await);
            };
            assert_eq!(played.left, expected, "{plan:?}");
            deaths.fetch_add(played.deaths, Ordering::SeqCst);
        }
    };
    futures::future::join_all((0..at_once).map(player)).await;
    let deaths = deaths.load(Ordering::SeqCst) as usize;
    println!("{deaths} of {planned} deaths");
    assert!(deaths * 10 >= planned * 7, "most of the {planned} deaths happen: {deaths}");
}

/// Every place at which a process can die once.
async fn single_deaths<S: Story>(stage: impl Fn() -> Stage) -> Vec<Plan> {
    // Who carries news from run to run is not the same each time: the fewest calls count, so that most deaths happen.
    let Played { left, calls, .. } = play::<S>(stage(), Plan::default()).await;
    let other = play::<S>(stage(), Plan::default()).await.calls;
    let [first, second, server] = std::array::from_fn(|at| calls[at].min(other[at]));
    S::judge(&left);
    assert!(left.runs.iter().all(|run| run.status == Status::Completed && run.abandoned == 0), "{left:?}");
    assert!((first >= 8 && second >= 8) || server >= 16, "{first}, {second} and {server} calls");
    let deaths = |calls: u64| (0..calls).flat_map(|at| [false, true].map(|is_done| vec![Death { at, is_done }]));
    let firsts = deaths(first).map(|first| Plan { first, ..Plan::default() });
    let seconds = deaths(second).map(|second| Plan { second, ..Plan::default() });
    let servers = deaths(server).map(|server| Plan { server, ..Plan::default() });
    firsts.chain(seconds).chain(servers).collect()
}

/// `ONWARD_SEED` plays other ones, `ONWARD_CASES` more of them.
struct Chance {
    seed: u64,
    cases: u64,
}

impl Chance {
    fn new(usual: u64) -> Chance {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
        let seed = number("ONWARD_SEED").unwrap_or(1);
        println!("seed {seed}");
        let cases = number("ONWARD_CASES").unwrap_or(usual);
        Chance { seed: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, cases }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % limit
    }

    fn death(&mut self, calls: u64) -> Death {
        Death { at: self.below(calls), is_done: self.below(2) == 0 }
    }

    /// Two deaths of one process: its second life has about as many calls before it as the first one left.
    fn deaths(&mut self, calls: u64) -> Vec<Death> {
        let first = self.death(calls);
        vec![first, self.death(calls - first.at)]
    }

    /// Some of the plans.
    fn sample(mut self, mut plans: Vec<Plan>) -> Vec<Plan> {
        while plans.len() as u64 > self.cases {
            let left_out = self.below(plans.len() as u64);
            plans.swap_remove(left_out as usize);
        }
        plans
    }
}

/// Two deaths of the processes that do the work, or one of each.
fn double_deaths(usual: u64) -> Vec<Plan> {
    let mut chance = Chance::new(usual);
    let cases = chance.cases;
    let plan = |case| match case % 3 {
        0 => Plan { first: chance.deaths(10), ..Plan::default() },
        1 => Plan { second: chance.deaths(10), ..Plan::default() },
        _ => Plan { first: vec![chance.death(10)], second: vec![chance.death(10)], ..Plan::default() },
    };
    (0..cases).map(plan).collect()
}

/// Two deaths of the server.
fn double_deaths_of_the_server(usual: u64) -> Vec<Plan> {
    let mut chance = Chance::new(usual);
    let cases = chance.cases;
    (0..cases).map(|_| Plan { server: chance.deaths(20), ..Plan::default() }).collect()
}

fn in_memory() -> Stage {
    Stage::apart(Place::memory())
}

fn served_in_memory() -> Stage {
    Stage::served(Place::memory())
}

#[tokio::test(flavor = "multi_thread")]
async fn either_process_may_die_anywhere() {
    let plans = single_deaths::<Conversation>(in_memory).await;
    matrix::<Conversation>(AT_ONCE, plans, in_memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_may_die_twice_anywhere() {
    matrix::<Conversation>(AT_ONCE, double_deaths(60), in_memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_may_die_twice_over_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let path = directory.path().to_owned();
    let stage = move || {
        let path = path.join(count.fetch_add(1, Ordering::SeqCst).to_string());
        Stage::apart(Place::Kept(Arc::new(EmbeddedStore::open(&path, Default::default()).unwrap())))
    };
    matrix::<Conversation>(AT_ONCE, double_deaths(16), stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_between_them_may_die_anywhere() {
    let plans = single_deaths::<Conversation>(served_in_memory).await;
    matrix::<Conversation>(AT_ONCE, plans, served_in_memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_between_them_may_die_twice_over_a_directory() {
    matrix::<Conversation>(AT_ONCE, double_deaths_of_the_server(16), || Stage::served(Place::directory())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn either_process_may_die_over_a_database() {
    let stage = Stage::apart(Place::database());
    let plans = Chance::new(16).sample(single_deaths::<Conversation>(|| stage.elsewhere()).await);
    matrix::<Conversation>(AT_ONCE, plans, || stage.elsewhere()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_may_die_twice_over_a_database() {
    let stage = Stage::apart(Place::database());
    matrix::<Conversation>(AT_ONCE, double_deaths(6), || stage.elsewhere()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_of_a_database_may_die_twice() {
    matrix::<Conversation>(4, double_deaths_of_the_server(4), || Stage::served(Place::database())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_and_what_it_spawned_may_die_anywhere() {
    let plans = single_deaths::<Errand>(in_memory).await;
    matrix::<Errand>(AT_ONCE, plans, in_memory).await;
    matrix::<Errand>(AT_ONCE, double_deaths(16), in_memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_between_a_run_and_what_it_spawned_may_die_anywhere() {
    let plans = single_deaths::<Errand>(served_in_memory).await;
    matrix::<Errand>(AT_ONCE, plans, served_in_memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_and_what_it_spawned_may_die_over_a_database() {
    let stage = Stage::apart(Place::database());
    let plans = Chance::new(8).sample(single_deaths::<Errand>(|| stage.elsewhere()).await);
    matrix::<Errand>(AT_ONCE, plans, || stage.elsewhere()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_and_the_agent_that_is_its_tool_may_die_anywhere() {
    let plans = single_deaths::<Delegation>(in_memory).await;
    matrix::<Delegation>(AT_ONCE, plans, in_memory).await;
    matrix::<Delegation>(AT_ONCE, double_deaths(16), in_memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_between_an_agent_and_the_agent_that_is_its_tool_may_die_anywhere() {
    let plans = single_deaths::<Delegation>(served_in_memory).await;
    matrix::<Delegation>(AT_ONCE, plans, served_in_memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_and_the_agent_that_is_its_tool_may_die_over_a_database() {
    let stage = Stage::apart(Place::database());
    let plans = Chance::new(8).sample(single_deaths::<Delegation>(|| stage.elsewhere()).await);
    matrix::<Delegation>(AT_ONCE, plans, || stage.elsewhere()).await;
}
