//! The programs: what their letters do.
//!
//! Everything that a program asks for has an identity: the generation, what it is, and the how-manieth of its kind. Every answer names the
//! identity that it was made for, and the program compares the two (MA2). What it asked for and what it said, it tells the judge besides.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{AgentCtx, Turn};
use crate::ctx::TaskCall;
use crate::{Failure, Result};

/// The signal by which people speak to the agent.
pub(super) const MESSAGE: &str = "message";

/// Whose entries come from outside.
pub(super) const GUEST: &str = "guest";

/// What a program does while it waits for the message with which its turn begins.
pub(super) const BETWEEN_TURNS: char = 'W';

/// How long a program waits where it does not wait forever.
const SPAN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(super) struct Program {
    turns: Vec<(Vec<[char; 2]>, char)>,
}

/// What nobody records: the bit, and what the code did when it ran last.
#[derive(Clone, Default)]
pub(super) struct Outside(Arc<Unrecorded>);

#[derive(Default)]
struct Unrecorded {
    bit: AtomicU32,
    done: Mutex<Done>,
}

/// What the code did when it ran last.
#[derive(Debug, Clone, Default)]
pub(super) struct Done {
    /// The operation that it was at in the end.
    pub doing: char,
    pub parts: BTreeMap<u32, Part>,
}

/// What it did in one generation.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    /// Roles and texts of the entries that it made, in order.
    pub said: Vec<(String, Value)>,
    /// The identities of what it asked for.
    pub asked: Vec<String>,
}

impl Outside {
    pub fn set(&self, bit: u32) {
        self.0.bit.store(bit, Ordering::SeqCst);
    }

    pub fn done(&self) -> Done {
        self.lock().clone()
    }

    fn bit(&self) -> u32 {
        self.0.bit.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Done> {
        self.0.done.lock().expect("no program panics while it writes down what it does")
    }
}

impl Program {
    /// `S N/V > W; D L > F`: two turns, the first of which does `S`, then `N` or `V`, and waits for a message.
    pub fn parse(text: &str) -> Program {
        let turn = |text: &str| {
            let (slots, end) = text.split_once('>').expect("a turn has an end");
            let slot = |slot: &str| {
                let mut letters = slot.chars().filter(|letter| *letter != '/');
                let zero = letters.next().expect("a slot has a letter");
                [zero, letters.next().unwrap_or(zero)]
            };
            let end = end.trim().chars().next().expect("an end has a letter");
            (slots.split_whitespace().map(slot).collect(), end)
        };
        Program { turns: text.split(';').map(turn).collect() }
    }

    pub async fn run(self, ctx: AgentCtx, outside: Outside) -> Result<u32> {
        *outside.lock() = Done { doing: BETWEEN_TURNS, ..Done::default() };
        ctx.turns(0u32, |turn| {
            let (program, part) = (&self, Teller::new(&ctx, &outside));
            async move {
                let (slots, end) = &program.turns[turn as usize];
                for slot in slots {
                    let bit = part.outside.bit();
                    part.operate(slot[(bit % 2) as usize], bit).await?;
                }
                Ok(match end {
                    'N' => Turn::Next(turn + 1),
                    'W' => Turn::Await(turn + 1, MESSAGE),
                    _ => Turn::Done(turn),
                })
            }
        })
        .await
    }
}

/// Goes through one generation and tells what it does.
struct Teller {
    ctx: AgentCtx,
    outside: Outside,
    generation: u32,
    counts: Mutex<BTreeMap<String, u32>>,
}

impl Teller {
    fn new(ctx: &AgentCtx, outside: &Outside) -> Teller {
        let generation = ctx.cell.lock().engine.generation();
        Teller { ctx: ctx.clone(), outside: outside.clone(), generation, counts: Mutex::default() }
    }

    async fn operate(&self, letter: char, bit: u32) -> Result<()> {
        let ctx = &self.ctx;
        self.outside.lock().doing = letter;
        match letter {
            '-' => {}
            'S' => self.say("said").await?,
            'B' => self.say("also said").await?,
            'K' => self.say(&format!("at {bit}")).await?,
            'U' => self.say(&ctx.uuid()).await?,
            'H' => {
                let has = ctx.signal(MESSAGE).has();
                self.say(if has { "somebody is there" } else { "nobody is there" }).await?;
            }
            'D' => {
                for number in ctx.signal(MESSAGE).drain::<u32>()? {
                    self.append("user", json!(number)).await?;
                }
            }
            'R' => {
                let number: u32 = ctx.signal(MESSAGE).recv().await?;
                self.append("user", json!(number)).await?;
            }
            'L' => self.model(json!({ "leaf": self.leaf() })).await?,
            'P' => self.look(json!(1)).await?,
            'Q' => self.look(json!(2)).await?,
            'N' => self.pay(json!({ "amount": 10 })).await?,
            'V' => self.pay(json!({ "amount": "10.0" })).await?,
            'M' => {
                let (asked, wire) = self.task("wire", json!(10));
                self.tell("tool", &asked, wire.at_most_once().await).await?;
            }
            'J' => self.both(bit, json!("one"), json!("two")).await?,
            'T' => self.both(bit, json!("twin"), json!("twin")).await?,
            'Y' => {
                let (asked, kept) = self.task("look", json!("kept"));
                let kept = kept.pure();
                self.model(json!("meanwhile")).await?;
                if bit.is_multiple_of(2) {
                    kept.cancel();
                }
                self.tell("tool", &asked, kept.await).await?;
            }
            'G' => drop(ctx.take_in().await),
            'X' => {
                self.asked("send told to peer");
                ctx.send_signal("peer", "told", &"hello")?;
            }
            'A' => {
                let asked = self.asked(&format!("approval may-i May I? under {}", self.leaf()));
                let decision = ctx.approval("may-i", "May I?").await?;
                let text = compare(&asked, decision.feedback.unwrap_or_default())?;
                self.append("system", json!(format!("{text}: {}", decision.approved))).await?;
            }
            'I' => {
                let asked = self.asked("step compute");
                let result = format!("{asked} by the step");
                self.tell("tool", &asked, ctx.step("compute", async || Ok::<_, Failure>(result)).await).await?;
            }
            'C' => {
                let asked = self.asked("child helper 1");
                self.tell("tool", &asked, ctx.child("helper", &1).await).await?;
            }
            'O' => {
                let asked = self.asked("promise answer");
                self.tell("tool", &asked, ctx.promise("answer").await).await?;
            }
            'Z' => ctx.sleep(SPAN).await?,
            'E' => {
                let heard: Option<u32> = ctx.signal(MESSAGE).recv_timeout(SPAN).await?;
                if let Some(number) = heard {
                    self.append("user", json!(number)).await?;
                }
            }
            other => panic!("no operation {other}"),
        }
        Ok(())
    }

    async fn model(&self, input: Value) -> Result<()> {
        let (asked, reply) = self.task("llm", input);
        self.tell("assistant", &asked, reply.pure().await).await
    }

    async fn look(&self, input: Value) -> Result<()> {
        let (asked, look) = self.task("look", input);
        self.tell("tool", &asked, look.pure().await).await
    }

    async fn pay(&self, input: Value) -> Result<()> {
        let (asked, payment) = self.task("pay", input);
        self.tell("tool", &asked, payment.await).await
    }

    /// Two at the same time; the bit says which is awaited first.
    async fn both(&self, bit: u32, one: Value, two: Value) -> Result<()> {
        let mut looks = [one, two].map(|input| {
            let (asked, look) = self.task("look", input);
            (asked, look.pure())
        });
        if !bit.is_multiple_of(2) {
            looks.reverse();
        }
        for (asked, look) in looks {
            self.tell("tool", &asked, look.await).await?;
        }
        Ok(())
    }

    fn task(&self, kind: &str, input: Value) -> (String, TaskCall<String>) {
        (self.asked(&format!("task {kind} {input}")), self.ctx.task(kind, &input))
    }

    fn leaf(&self) -> String {
        self.ctx.leaf().map(|leaf| leaf.to_string()).unwrap_or_default()
    }

    /// The identity of what is asked for.
    fn asked(&self, what: &str) -> String {
        let asked = self.counted(what);
        self.outside.lock().parts.entry(self.generation).or_default().asked.push(asked.clone());
        asked
    }

    fn counted(&self, what: &str) -> String {
        let mut counts = self.counts.lock().expect("nobody panics while it counts");
        let count = counts.entry(what.to_owned()).or_default();
        *count += 1;
        format!("{}: {what} #{}", self.generation, *count - 1)
    }

    async fn say(&self, text: &str) -> Result<()> {
        self.append("system", json!(self.counted(text))).await
    }

    async fn tell(&self, role: &str, asked: &str, result: Result<String>) -> Result<()> {
        match result {
            Ok(text) => self.append(role, json!(compare(asked, text)?)).await,
            Err(failure) if failure.code == "canceled" => self.say(&format!("gave up {asked}")).await,
            Err(failure) => self.append(role, json!(compare(asked, failure.message)?)).await,
        }
    }

    async fn append(&self, role: &str, content: Value) -> Result<()> {
        self.ctx.append(role, &content).await?;
        self.outside.lock().parts.entry(self.generation).or_default().said.push((role.to_owned(), content));
        Ok(())
    }
}

/// An answer says what it was made for. A program that is given another one fails, which none does otherwise.
fn compare(asked: &str, answer: String) -> Result<String> {
    let is_it = answer.strip_prefix(asked).is_some_and(|rest| rest.starts_with(" by "));
    if is_it { Ok(answer) } else { Err(Failure::fatal(format!("MA2: {asked} was given {answer}"))) }
}
