//! The crash matrix of agents: a conversation of three turns with tools and steering, in which the process of the agent, the process that
//! works on its tasks, or the server between them dies before or after every store call that can matter. The conversation, the tasks with
//! their results and what the tools did equal those of a run in which nobody dies. Models are called once for each answer, but for attempts
//! whose worker died before anybody had recorded what came of them; those are in the totals of the run.

mod dying;
mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dying::Death;
use onward::agent::{AgentCtx, Provider, Role, Tool, Tools, Turn};
use onward::prelude::*;
use onward::{Event, TaskCtx, join_all};
use onward_core::conversation::{entries_of, leaf_of};
use onward_core::spend::SpendTotals;
use onward_llm_scripted::{Answer, Rule, ScriptedModel, When};
use onward_store_embedded::EmbeddedStore;
use schemars::JsonSchema;
use serde::Deserialize;
use stage::{Actor, Begun, Life, Place, Stage, insist};

/// How many conversations are played at a time.
const AT_ONCE: usize = 6;

/// How long a conversation may take on a machine that has other things to do.
const ENDS_IN: Duration = Duration::from_secs(60);

/// How often the model answers when nobody dies.
const ANSWERS: u64 = 3;

/// Three answers: the first asks for tools, and whoever works on them has something to say meanwhile.
async fn conversation(ctx: AgentCtx, first: String) -> Result<u32> {
    ctx.append(Role::User, &first).await?;
    ctx.turns(0u32, async |turn| {
        for message in ctx.signal("message").drain::<String>()? {
            ctx.append(Role::User, &message).await?;
        }
        let tools = ctx.dep::<Tools>();
        let reply = ctx.llm("m").system("Be brief.").tools(&tools).await?;
        ctx.append(Role::Assistant, &reply).await?;
        if reply.wants_tools() {
            for outcome in join_all(reply.calls().map(|call| ctx.tool(call))).await? {
                ctx.append(Role::Tool, &outcome).await?;
            }
            return Ok(Turn::Next(turn + 1));
        }
        Ok(if turn == 2 { Turn::Done(turn) } else { Turn::Await(turn + 1, "message") })
    })
    .await
}

#[derive(Deserialize, JsonSchema)]
struct Amount {
    cents: u64,
}

/// The world outside: what was paid, by the key of the payment.
#[derive(Clone, Default)]
struct World {
    paid: Arc<Mutex<BTreeSet<String>>>,
    client: Arc<Mutex<Option<Onward>>>,
}

impl World {
    fn tools(&self) -> Tools {
        let world = self.clone();
        let pay = move |ctx: TaskCtx, Amount { cents }| {
            let world = world.clone();
            async move {
                world.paid.lock().unwrap().insert(format!("{} {cents}", ctx.idempotency_key()));
                Ok::<_, Failure>(format!("paid {cents}"))
            }
        };
        let world = self.clone();
        let look = move |_: Amount| {
            let client = world.client.lock().unwrap().clone().unwrap();
            async move {
                // Steering: said while the tools work, and always before this one has answered.
                let run = client.run::<u32>("c").unwrap();
                insist(|| run.signal_once("message", "and be quick", "steering")).await;
                Ok::<_, Failure>("it is there")
            }
        };
        Tools::new().with(Tool::with("pay", "Pays", pay).keyed().retry(9)).with(Tool::new("look", "Looks", look).pure().retry(9))
    }
}

/// Who dies where: one after the other.
#[derive(Debug, Clone, Default)]
struct Plan {
    agent: Vec<Death>,
    tasks: Vec<Death>,
    server: Vec<Death>,
}

/// How a conversation was played.
struct Played {
    left: Left,
    /// How many calls the process of the agent, that of the tasks and the server made.
    calls: [u64; 3],
    deaths: u32,
}

/// What is left when all is over.
#[derive(Debug, PartialEq)]
struct Left {
    /// Names the whole conversation.
    leaf: String,
    entries: usize,
    /// The tasks, each with its one result.
    tasks: Vec<(String, String)>,
    paid: usize,
    abandoned: usize,
}

async fn script() -> ScriptedModel {
    let model = ScriptedModel::start().await.unwrap();
    let calls = Answer::text("Let me see.").and_call("pay", r#"{"cents":42}"#).and_call("look", r#"{"cents":1}"#);
    let turn = |turn: usize, answer: Answer| Rule { when: When { turn: Some(turn), ..When::default() }, answer, times: None };
    model.rule(turn(0, calls));
    model.rule(turn(1, Answer::text("It is paid, and I was quick.")));
    model.rule(turn(2, Answer::text("Goodbye.")));
    model
}

/// A process that runs the agent, and one that works on its tasks.
fn actors(stage: &Stage, plan: &Plan, world: &World, model: &ScriptedModel) -> [Actor; 2] {
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap();
    let (place, tools) = (stage.clone(), world.tools());
    let agent = move |death| -> Begun {
        let (place, tools) = (place.clone(), tools.clone());
        Box::pin(async move {
            let (builder, store) = place.builder(death).await;
            let engine = builder.agent("conversation", conversation).dep(tools).start().await.unwrap();
            Life { engine: Some(engine), store, threads: None }
        })
    };
    let (place, tools) = (stage.clone(), world.tools());
    let tasks = move |death| -> Begun {
        let (place, tools, provider) = (place.clone(), tools.clone(), provider.clone());
        Box::pin(async move {
            let (builder, store) = place.builder(death).await;
            let engine = builder.model("m", &provider).tools(tools).start().await.unwrap();
            Life { engine: Some(engine), store, threads: None }
        })
    };
    [Actor::new(plan.agent.clone(), agent), Actor::new(plan.tasks.clone(), tasks)]
}

/// Plays the conversation once.
async fn play(stage: Stage, plan: Plan) -> Played {
    let (model, world) = (script().await, World::default());
    let [agent, tasks] = actors(&stage, &plan, &world, &model);
    let server = stage.server(plan.server.clone());
    let serving = async {
        match &server {
            Some(server) => server.live().await,
            None => std::future::pending().await,
        }
    };
    let (left, spend) = tokio::select! {
        seen = talk(&stage, &world, &agent) => seen,
        () = agent.live() => unreachable!(),
        () = tasks.live() => unreachable!(),
        () = serving => unreachable!(),
    };
    let actors = [Some(&agent), Some(&tasks), server.as_ref()];
    let deaths = actors.iter().flatten().map(|actor| actor.deaths()).sum();
    let asked = model.request_count();
    assert!(asked <= spend.attempts, "every call of the model is in the totals: {asked} calls, {spend:?}");
    assert!(spend.attempts - spend.unknown >= ANSWERS, "every answer is, with its cost: {spend:?}");
    Played { left, calls: actors.map(|actor| actor.map_or(0, Actor::calls)), deaths }
}

/// What a person does, and sees at the end.
async fn talk(stage: &Stage, world: &World, agent: &Actor) -> (Left, SpendTotals) {
    let client = stage.builder(None).await.0.start().await.unwrap();
    *world.client.lock().unwrap() = Some(client.clone());
    insist(|| async { agent.engine().await.start::<u32, _>("conversation", "pay and look").id("c").await }).await;
    let run = client.run::<u32>("c").unwrap();
    let waits = |view: &onward::RunView| {
        view.awaiting.iter().any(|awaited| awaited.name.as_ref().is_some_and(|name| name.as_str() == "message"))
    };
    insist(|| run.until(waits)).await;
    insist(|| run.signal_once("message", "thank you", "second")).await;
    assert_eq!(insist(|| run.result()).await, 2);
    let seen = insist(|| look(&client, world)).await;
    world.client.lock().unwrap().take();
    seen
}

/// What is left, and what it has cost.
async fn look(client: &Onward, world: &World) -> Result<(Left, SpendTotals), onward::Error> {
    let run = client.run::<u32>("c")?;
    let head = run.view().await?.head;
    let (mut leaf, mut entries, mut tasks, mut abandoned) = (None, 0, Vec::new(), 0);
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
                    tasks.push((kind, String::from_utf8_lossy(event.output.data()).into_owned()));
                }
                Event::SegmentAbandoned(_) => abandoned += 1,
                _ => {}
            }
        }
        assert!(open.is_empty(), "every task has a result: {open:?}");
    }
    tasks.sort();
    let paid = world.paid.lock().unwrap().len();
    let spend = *head.spend.expect("models were called");
    Ok((Left { leaf: leaf.unwrap().to_string(), entries, tasks, paid, abandoned }, spend))
}

/// Plays every plan on a stage of its own, several at a time, and compares.
async fn matrix(at_once: usize, plans: Vec<Plan>, stage: impl Fn() -> Stage) {
    let expected = play(stage(), Plan::default()).await.left;
    let planned: usize = plans.iter().map(|plan| plan.agent.len() + plan.tasks.len() + plan.server.len()).sum();
    let deaths = AtomicU32::new(0);
    let plans = Mutex::new(plans);
    let player = async |_| {
        loop {
            let Some(plan) = plans.lock().unwrap().pop() else { return };
            let stage = stage();
            let Ok(played) = tokio::time::timeout(ENDS_IN, play(stage.clone(), plan.clone())).await else {
                panic!("it does not end: {plan:?}\n{}", stage.show().await);
            };
            assert_eq!(played.left, expected, "{plan:?}");
            deaths.fetch_add(played.deaths, Ordering::SeqCst);
        }
    };
    futures::future::join_all((0..at_once).map(player)).await;
    let deaths = deaths.load(Ordering::SeqCst) as usize;
    assert!(deaths * 10 >= planned * 7, "most of the {planned} deaths happen: {deaths}");
}

/// Every place at which a process can die once.
async fn single_deaths(stage: Stage) -> Vec<Plan> {
    let Played { left, calls: [agent, tasks, server], .. } = play(stage, Plan::default()).await;
    assert_eq!((left.entries, left.paid, left.abandoned), (8, 1, 0), "{left:?}");
    assert!((agent >= 8 && tasks >= 8) || server >= 16, "{agent}, {tasks} and {server} calls");
    let deaths = |calls: u64| (0..calls).flat_map(|at| [false, true].map(|is_done| vec![Death { at, is_done }]));
    let agents = deaths(agent).map(|agent| Plan { agent, ..Plan::default() });
    let workers = deaths(tasks).map(|tasks| Plan { tasks, ..Plan::default() });
    let servers = deaths(server).map(|server| Plan { server, ..Plan::default() });
    agents.chain(workers).chain(servers).collect()
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
    let plan = |case| {
        let [first, second] = [chance.death(10), chance.death(10)];
        match case % 3 {
            0 => Plan { agent: vec![first, second], ..Plan::default() },
            1 => Plan { tasks: vec![first, second], ..Plan::default() },
            _ => Plan { agent: vec![first], tasks: vec![second], ..Plan::default() },
        }
    };
    (0..cases).map(plan).collect()
}

/// Two deaths of the server.
fn double_deaths_of_the_server(usual: u64) -> Vec<Plan> {
    let mut chance = Chance::new(usual);
    let cases = chance.cases;
    (0..cases).map(|_| Plan { server: vec![chance.death(20), chance.death(20)], ..Plan::default() }).collect()
}

fn in_memory() -> Stage {
    Stage::apart(Place::memory())
}

fn served_in_memory() -> Stage {
    Stage::served(Place::memory())
}

#[tokio::test(flavor = "multi_thread")]
async fn either_process_may_die_anywhere() {
    let plans = single_deaths(in_memory()).await;
    matrix(AT_ONCE, plans, in_memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_may_die_twice_anywhere() {
    matrix(AT_ONCE, double_deaths(60), in_memory).await;
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
    matrix(AT_ONCE, double_deaths(16), stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_between_them_may_die_anywhere() {
    let plans = single_deaths(served_in_memory()).await;
    matrix(AT_ONCE, plans, served_in_memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_between_them_may_die_twice_over_a_directory() {
    matrix(AT_ONCE, double_deaths_of_the_server(16), || Stage::served(Place::directory())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn either_process_may_die_over_a_database() {
    let stage = Stage::apart(Place::database());
    let plans = Chance::new(16).sample(single_deaths(stage.elsewhere()).await);
    matrix(AT_ONCE, plans, || stage.elsewhere()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_may_die_twice_over_a_database() {
    let stage = Stage::apart(Place::database());
    matrix(AT_ONCE, double_deaths(6), || stage.elsewhere()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_of_a_database_may_die_twice() {
    matrix(4, double_deaths_of_the_server(4), || Stage::served(Place::database())).await;
}
