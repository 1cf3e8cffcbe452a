//! The crash matrix of agents: a conversation of three turns with tools and steering, in which the process of the agent or the process that
//! works on its tasks dies before or after every store call that can matter. The conversation, the tasks and what the tools did equal those
//! of a run in which nobody dies.

mod dying;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dying::{Death, DyingStore};
use onward::agent::{AgentCtx, Provider, Role, Tool, Tools, Turn};
use onward::prelude::*;
use onward::{Event, TaskCtx, join_all};
use onward_core::conversation::{entries_of, leaf_of};
use onward_llm_scripted::{Answer, Rule, ScriptedModel, When};
use onward_store::{Clock, MemoryStore, Store, SystemClock};
use onward_store_embedded::EmbeddedStore;
use schemars::JsonSchema;
use serde::Deserialize;

const LEASE: Duration = Duration::from_millis(300);

/// How many conversations are played at a time.
const AT_ONCE: usize = 8;

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
                client.run::<u32>("c")?.signal_once("message", "and be quick", "steering").await?;
                Ok::<_, onward::Error>("it is there")
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
}

/// How a conversation was played.
struct Played {
    left: Left,
    /// How many calls the process of the agent and that of the tasks made.
    calls: (u64, u64),
    deaths: u32,
}

/// What is left when all is over.
#[derive(Debug, PartialEq)]
struct Left {
    /// Names the whole conversation.
    leaf: String,
    entries: usize,
    /// How many tasks of each kind there were; each has one result.
    tasks: Vec<(String, usize)>,
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

/// Plays the conversation once.
async fn play(store: Arc<dyn Store>, model: &ScriptedModel, plan: Plan) -> Played {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let world = World::default();
    let client = Onward::with_store(store.clone(), clock.clone()).lease(LEASE).start().await.unwrap();
    *world.client.lock().unwrap() = Some(client.clone());
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap();
    let agent = async |death| {
        let dying = DyingStore::new(store.clone(), death);
        let builder = Onward::with_store(Arc::new(dying.clone()), clock.clone()).lease(LEASE).threads(1);
        (builder.agent("conversation", conversation).dep(world.tools()).start().await.unwrap(), dying)
    };
    let tasks = async |death| {
        let dying = DyingStore::new(store.clone(), death);
        let builder = Onward::with_store(Arc::new(dying.clone()), clock.clone()).lease(LEASE).threads(1);
        (builder.model("m", &provider).tools(world.tools()).start().await.unwrap(), dying)
    };
    let (mut agent_deaths, mut task_deaths) = (plan.agent.into_iter(), plan.tasks.into_iter());
    let (mut agents, mut agents_store) = agent(agent_deaths.next()).await;
    let (mut workers, mut workers_store) = tasks(task_deaths.next()).await;
    let mut deaths = 0;
    agents_store.known().await;
    loop {
        tokio::select! {
            started = agents.start::<u32, _>("conversation", "pay and look").id("c").into_future() => {
                started.unwrap();
                break;
            }
            () = agents_store.died() => {
                deaths += 1;
                drop(agents);
                (agents, agents_store) = agent(agent_deaths.next()).await;
            }
        }
    }
    let run = client.run::<u32>("c").unwrap();
    let mut ended = std::pin::pin!(async {
        let waits = |view: &onward::RunView| {
            view.awaiting.iter().any(|awaited| awaited.name.as_ref().is_some_and(|name| name.as_str() == "message"))
        };
        run.until(waits).await.unwrap();
        run.signal_once("message", "thank you", "second").await.unwrap();
        run.result().await.unwrap()
    });
    loop {
        tokio::select! {
            turns = &mut ended => {
                assert_eq!(turns, 2);
                break;
            }
            () = agents_store.died() => {
                deaths += 1;
                drop(agents);
                (agents, agents_store) = agent(agent_deaths.next()).await;
            }
            () = workers_store.died() => {
                deaths += 1;
                drop(workers);
                (workers, workers_store) = tasks(task_deaths.next()).await;
            }
        }
    }
    let left = look(&client, &world).await;
    drop((agents, workers));
    world.client.lock().unwrap().take();
    Played { left, calls: (agents_store.calls(), workers_store.calls()), deaths }
}

async fn look(client: &Onward, world: &World) -> Left {
    let run = client.run::<u32>("c").unwrap();
    let last = run.view().await.unwrap().head.generation;
    let (mut leaf, mut entries, mut tasks, mut abandoned) = (None, 0, Vec::new(), 0);
    for generation in 0..=last {
        let log = run.log_of(generation).await.unwrap();
        leaf = leaf_of(&log).or(leaf);
        entries += entries_of(generation, &log).iter().filter(|entry| !entry.is_aside && !entry.is_abandoned).count();
        for event in log.iter().flat_map(|record| &record.events) {
            match event {
                Event::TaskScheduled(event) => tasks.push((event.kind.to_string(), event.place.clone(), generation, 0)),
                Event::TaskCompleted(event) => {
                    let task = tasks.iter_mut().find(|task| (&task.1, task.2) == (&event.place, generation)).unwrap();
                    task.3 += 1;
                }
                Event::SegmentAbandoned(_) => abandoned += 1,
                _ => {}
            }
        }
    }
    assert!(tasks.iter().all(|task| task.3 == 1), "every task has one result: {tasks:?}");
    let kinds: BTreeSet<&String> = tasks.iter().map(|task| &task.0).collect();
    let count = |kind: &String| tasks.iter().filter(|task| task.0 == *kind).count();
    let tasks = kinds.into_iter().map(|kind| (kind.clone(), count(kind))).collect();
    let paid = world.paid.lock().unwrap().len();
    Left { leaf: leaf.unwrap().to_string(), entries, tasks, paid, abandoned }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock)))
}

/// Plays every plan on a store of its own, several at a time, and compares.
async fn matrix(plans: Vec<Plan>, store: impl Fn() -> Arc<dyn Store> + Clone + Send + Sync + 'static) {
    let model = Arc::new(script().await);
    let expected = Arc::new(play(store(), &model, Plan::default()).await.left);
    let planned: usize = plans.iter().map(|plan| plan.agent.len() + plan.tasks.len()).sum();
    let deaths = Arc::new(AtomicU32::new(0));
    let plans = Arc::new(Mutex::new(plans));
    let mut players = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (model, plans, expected) = (model.clone(), plans.clone(), expected.clone());
        let (deaths, store) = (deaths.clone(), store.clone());
        players.spawn(async move {
            loop {
                let Some(plan) = plans.lock().unwrap().pop() else { return };
                let played = tokio::time::timeout(Duration::from_secs(60), play(store(), &model, plan.clone())).await;
                let played = played.unwrap_or_else(|_| panic!("it does not end: {plan:?}"));
                assert_eq!(played.left, *expected, "{plan:?}");
                deaths.fetch_add(played.deaths, Ordering::SeqCst);
            }
        });
    }
    while let Some(player) = players.join_next().await {
        player.unwrap();
    }
    let deaths = deaths.load(Ordering::SeqCst) as usize;
    assert!(deaths * 10 >= planned * 7, "most of the {planned} deaths happen: {deaths}");
}

/// Every place at which either process can die once.
async fn single_deaths(store: impl Fn() -> Arc<dyn Store>) -> Vec<Plan> {
    let Played { left, calls: (agent, tasks), .. } = play(store(), &script().await, Plan::default()).await;
    assert_eq!((left.entries, left.paid, left.abandoned), (8, 1, 0), "{left:?}");
    assert!(agent >= 8 && tasks >= 12, "{agent} and {tasks} calls");
    let deaths = |calls: u64| (0..calls).flat_map(|at| [false, true].map(|is_done| Death { at, is_done }));
    let agents = deaths(agent).map(|death| Plan { agent: vec![death], tasks: Vec::new() });
    agents.chain(deaths(tasks).map(|death| Plan { agent: Vec::new(), tasks: vec![death] })).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn either_process_may_die_anywhere() {
    let plans = single_deaths(memory).await;
    matrix(plans, memory).await;
}

/// `ONWARD_SEED` plays other ones, `ONWARD_CASES` more of them.
fn double_deaths(usual: u64) -> Vec<Plan> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seed = number("ONWARD_SEED").unwrap_or(1);
    println!("seed {seed}");
    let mut chance = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |below: u64| {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        chance % below
    };
    let mut death = || Death { at: next(10), is_done: next(2) == 0 };
    let plan = |case| match case % 3 {
        0 => Plan { agent: vec![death(), death()], tasks: Vec::new() },
        1 => Plan { agent: Vec::new(), tasks: vec![death(), death()] },
        _ => Plan { agent: vec![death()], tasks: vec![death()] },
    };
    (0..number("ONWARD_CASES").unwrap_or(usual)).map(plan).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_may_die_twice_anywhere() {
    matrix(double_deaths(60), memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_may_die_twice_over_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let path = directory.path().to_owned();
    let store = move || -> Arc<dyn Store> {
        let path = path.join(count.fetch_add(1, Ordering::SeqCst).to_string());
        Arc::new(EmbeddedStore::open(&path, Default::default()).unwrap())
    };
    matrix(double_deaths(16), store).await;
}
