//! The programs: operations by their letters.
//!
//! Every call of a program has an identity: the generation, the content, and its ordinal among equal calls. Every answer contains
//! the identity that it was made for, and the program compares the two (MA2). It also reports its calls and entries to the
//! oracle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{AgentCtx, Turn};
use crate::ctx::TaskCall;
use crate::{Failure, Result};

/// The signal with messages of users to the agent.
pub(super) const MESSAGE: &str = "message";

/// The role of entries from outside.
pub(super) const GUEST: &str = "guest";

/// The role of messages with a branch.
pub(super) const EDITOR: &str = "editor";

/// The operation of a program that waits for the message with which its turn begins.
pub(super) const BETWEEN_TURNS: char = 'W';

/// Duration of limited waits.
const SPAN: Duration = Duration::from_secs(60);

/// Operations, each with the alternative for bit one.
type Slots = Vec<[char; 2]>;

#[derive(Debug, Clone)]
pub(super) struct Program {
    /// Code before the loop.
    prelude: Slots,
    turns: Vec<(Slots, char)>,
    /// Without [`AgentCtx::turns`]: the code reads its checkpoint state itself.
    has_phases: bool,
}

/// State that is not recorded: the bit, and what the code did in its last execution.
#[derive(Clone, Default)]
pub(super) struct Outside(Arc<Unrecorded>);

#[derive(Default)]
struct Unrecorded {
    bit: AtomicU32,
    prelude: Mutex<Option<u32>>,
    done: Mutex<Done>,
}

/// What the code did in its last execution.
#[derive(Debug, Clone, Default)]
pub(super) struct Done {
    /// The operation at its end.
    pub doing: char,
    pub parts: BTreeMap<u32, Part>,
}

/// What it did in one generation.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    /// Roles and texts of its entries, in order.
    pub appended: Vec<(String, Value)>,
    /// The identities of its calls.
    pub calls: Vec<String>,
}

impl Outside {
    /// Sets the bit, and its value at the checkpoint that closed the code before the loop, which is replayed strictly from then
    /// on.
    pub fn set(&self, bit: u32, prelude: Option<u32>) {
        self.0.bit.store(bit, Ordering::SeqCst);
        *self.0.prelude.lock().expect("the lock is not poisoned") = prelude;
        self.begin();
    }

    /// Resets to the start of the code.
    fn begin(&self) {
        *self.lock() = Done { doing: BETWEEN_TURNS, ..Done::default() };
    }

    pub fn done(&self) -> Done {
        self.lock().clone()
    }

    pub fn bit(&self) -> u32 {
        self.0.bit.load(Ordering::SeqCst)
    }

    fn prelude_bit(&self) -> u32 {
        self.0.prelude.lock().expect("the lock is not poisoned").unwrap_or_else(|| self.bit())
    }

    fn lock(&self) -> MutexGuard<'_, Done> {
        self.0.done.lock().expect("no program panics while it writes down what it does")
    }
}

impl Program {
    /// Parses a program. `S N/V > W; D L > F`: two turns, the first of which does `S`, then `N` or `V`, and waits for a message.
    /// `S | L > F` does `S` before the loop. With `!` in front the code has phases instead of turns.
    pub fn parse(text: &str) -> Program {
        let slot = |slot: &str| {
            let mut letters = slot.chars().filter(|letter| *letter != '/');
            let zero = letters.next().expect("a slot has a letter");
            [zero, letters.next().unwrap_or(zero)]
        };
        let slots = |text: &str| text.split_whitespace().map(slot).collect();
        let turn = |text: &str| {
            let (text, end) = text.split_once('>').expect("a turn has an end");
            (slots(text), end.trim().chars().next().expect("an end has a letter"))
        };
        let (has_phases, text) = text.strip_prefix('!').map_or((false, text), |text| (true, text));
        let (prelude, text) = text.split_once('|').unwrap_or(("", text));
        Program { prelude: slots(prelude), turns: text.split(';').map(turn).collect(), has_phases }
    }

    pub async fn run(self, ctx: AgentCtx, outside: Outside) -> Result<u32> {
        outside.begin();
        if self.has_phases {
            return self.run_phase(ctx, outside).await;
        }
        let prelude = Interpreter::new(&ctx, &outside, 0);
        for slot in &self.prelude {
            let bit = outside.prelude_bit();
            prelude.operate(slot[(bit % 2) as usize], bit).await?;
        }
        outside.lock().doing = BETWEEN_TURNS;
        ctx.turns(0u32, |turn| {
            let generation = ctx.cell.lock().engine.generation();
            let (program, interpreter) = (&self, Interpreter::new(&ctx, &outside, generation));
            async move {
                Ok(match program.take_turn(&interpreter, turn).await? {
                    'N' => Turn::Next(turn + 1),
                    'W' => Turn::Await(turn + 1, MESSAGE),
                    _ => Turn::Done(turn),
                })
            }
        })
        .await
    }

    async fn run_phase(&self, ctx: AgentCtx, outside: Outside) -> Result<u32> {
        let phase: u32 = ctx.checkpointed()?.unwrap_or_default();
        let generation = ctx.cell.lock().engine.generation();
        let interpreter = Interpreter::new(&ctx, &outside, generation);
        if phase > 0 && self.turns[phase as usize - 1].1 == 'W' {
            interpreter.operate('R', 0).await?;
        }
        match self.take_turn(&interpreter, phase).await? {
            'F' => Ok(phase),
            _ => ctx.checkpoint(&(phase + 1)).await,
        }
    }

    /// Executes the slots of a turn and returns its end.
    async fn take_turn(&self, interpreter: &Interpreter, turn: u32) -> Result<char> {
        let (slots, end) = &self.turns[turn as usize];
        for slot in slots {
            let bit = interpreter.outside.bit();
            interpreter.operate(slot[(bit % 2) as usize], bit).await?;
        }
        Ok(*end)
    }
}

/// Executes one generation and reports what it does.
struct Interpreter {
    ctx: AgentCtx,
    outside: Outside,
    generation: u32,
    counts: Mutex<BTreeMap<String, u32>>,
}

impl Interpreter {
    fn new(ctx: &AgentCtx, outside: &Outside, generation: u32) -> Interpreter {
        Interpreter { ctx: ctx.clone(), outside: outside.clone(), generation, counts: Mutex::default() }
    }

    async fn operate(&self, letter: char, bit: u32) -> Result<()> {
        let ctx = &self.ctx;
        self.outside.lock().doing = letter;
        match letter {
            '-' => {}
            'S' => self.append_text("said").await?,
            'B' => self.append_text("also said").await?,
            'K' => self.append_text(&format!("at {bit}")).await?,
            'U' => self.append_text(&ctx.uuid()).await?,
            'H' => {
                let has = ctx.signal(MESSAGE).has();
                self.append_text(if has { "somebody is there" } else { "nobody is there" }).await?;
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
                let (call, wire) = self.task("wire", json!(10));
                self.append_result("tool", &call, wire.at_most_once().await).await?;
            }
            'J' => self.both(bit, json!("one"), json!("two")).await?,
            'T' => self.both(bit, json!("twin"), json!("twin")).await?,
            'Y' => {
                let (call, kept) = self.task("look", json!("kept"));
                let kept = kept.pure();
                self.model(json!("meanwhile")).await?;
                if bit.is_multiple_of(2) {
                    kept.cancel();
                }
                self.append_result("tool", &call, kept.await).await?;
            }
            'G' => drop(ctx.take_in().await),
            'X' => {
                self.record_call("send told to peer");
                ctx.send_signal("peer", "told", &"hello")?;
            }
            'A' | 'a' => {
                let call = self.record_call(&format!("approval may-i May I? under {}", self.leaf()));
                let approval = ctx.approval("may-i", "May I?");
                let decision = if letter == 'a' { approval.within(SPAN).await? } else { approval.await? };
                match decision.feedback {
                    None if decision.expired => self.append_text(&format!("nobody decided {call}")).await?,
                    feedback => {
                        let text = compare(&call, feedback.unwrap_or_default())?;
                        self.append("system", json!(format!("{text}: {}", decision.approved))).await?;
                    }
                }
            }
            'I' => {
                let call = self.record_call("step compute");
                let result = format!("{call} by the step");
                self.append_result("tool", &call, ctx.step("compute", async || Ok::<_, Failure>(result)).await).await?;
            }
            'C' => {
                let call = self.record_call("child helper 1");
                self.append_result("tool", &call, ctx.child("helper", &1).await).await?;
            }
            'O' => {
                let call = self.record_call("promise answer");
                self.append_result("tool", &call, ctx.promise("answer").await).await?;
            }
            'Z' => ctx.sleep(SPAN).await?,
            'E' => {
                let received: Option<u32> = ctx.signal(MESSAGE).recv_timeout(SPAN).await?;
                if let Some(number) = received {
                    self.append("user", json!(number)).await?;
                }
            }
            's' => {
                let (call, look) = self.task("look", json!("selected"));
                let won = crate::select! {
                    number = ctx.signal(MESSAGE).recv::<u32>() => Won::Message(number?),
                    result = look.pure() => Won::Look(result),
                    slept = ctx.sleep(SPAN) => slept.map(|()| Won::Time)?,
                };
                match won {
                    Won::Message(number) => self.append("user", json!(number)).await?,
                    Won::Look(result) => self.append_result("tool", &call, result).await?,
                    Won::Time => self.append_text("nothing came").await?,
                }
            }
            'r' => {
                let runners = ["left", "right"].map(|side| self.task("look", json!(side)));
                let calls = runners.each_ref().map(|(call, _)| call.clone());
                match crate::race(runners.map(|(_, look)| look.pure())).await {
                    Ok(text) => {
                        let call = calls.iter().find(|call| text.starts_with(*call)).unwrap_or(&calls[0]);
                        self.append_result("tool", call, Ok(text)).await?;
                    }
                    Err(_) => self.append_text("nobody has won").await?,
                }
            }
            'j' => {
                let arms = [json!("an arm"), json!("another arm")];
                let [one, two] = arms.map(|input| async move {
                    let (call, look) = self.task("look", input.clone());
                    let first = look.pure().await;
                    let (then, again) = self.task("pay", input);
                    (call, first, then, again.await)
                });
                let promised = self.record_call("promise joined");
                let (one, two, kept) = crate::join!(one, two, ctx.promise::<String>("joined"));
                for (call, first, then, second) in [one, two] {
                    self.append_result("tool", &call, first).await?;
                    self.append_result("tool", &then, second).await?;
                }
                self.append_result("tool", &promised, kept).await?;
            }
            other => panic!("no operation {other}"),
        }
        Ok(())
    }

    async fn model(&self, input: Value) -> Result<()> {
        let (call, reply) = self.task("llm", input);
        self.append_result("assistant", &call, reply.pure().await).await
    }

    async fn look(&self, input: Value) -> Result<()> {
        let (call, look) = self.task("look", input);
        self.append_result("tool", &call, look.pure().await).await
    }

    async fn pay(&self, input: Value) -> Result<()> {
        let (call, payment) = self.task("pay", input);
        self.append_result("tool", &call, payment.await).await
    }

    /// Runs two tasks at the same time; the bit decides which is awaited first.
    async fn both(&self, bit: u32, one: Value, two: Value) -> Result<()> {
        let mut looks = [one, two].map(|input| {
            let (call, look) = self.task("look", input);
            (call, look.pure())
        });
        if !bit.is_multiple_of(2) {
            looks.reverse();
        }
        for (call, look) in looks {
            self.append_result("tool", &call, look.await).await?;
        }
        Ok(())
    }

    fn task(&self, kind: &str, input: Value) -> (String, TaskCall<String>) {
        (self.record_call(&format!("task {kind} {input}")), self.ctx.task(kind, &input))
    }

    fn leaf(&self) -> String {
        self.ctx.leaf().map(|leaf| leaf.to_string()).unwrap_or_default()
    }

    /// Returns the identity of a call, and records it.
    fn record_call(&self, what: &str) -> String {
        let call = self.counted(what);
        self.outside.lock().parts.entry(self.generation).or_default().calls.push(call.clone());
        call
    }

    fn counted(&self, what: &str) -> String {
        let mut counts = self.counts.lock().expect("the lock is not poisoned");
        let count = counts.entry(what.to_owned()).or_default();
        *count += 1;
        format!("{}: {what} #{}", self.generation, *count - 1)
    }

    async fn append_text(&self, text: &str) -> Result<()> {
        self.append("system", json!(self.counted(text))).await
    }

    async fn append_result(&self, role: &str, call: &str, result: Result<String>) -> Result<()> {
        match result {
            Ok(text) => self.append(role, json!(compare(call, text)?)).await,
            Err(failure) if failure.code == "canceled" => self.append_text(&format!("gave up {call}")).await,
            Err(failure) => self.append(role, json!(compare(call, failure.message)?)).await,
        }
    }

    async fn append(&self, role: &str, content: Value) -> Result<()> {
        self.ctx.append(role, &content).await?;
        self.outside.lock().parts.entry(self.generation).or_default().appended.push((role.to_owned(), content));
        Ok(())
    }
}

/// What came first.
enum Won {
    Message(u32),
    Look(Result<String>),
    Time,
}

/// Compares an answer with its call. A program that gets a wrong one fails, which no program does otherwise.
fn compare(call: &str, answer: String) -> Result<String> {
    let is_it = answer.strip_prefix(call).is_some_and(|rest| rest.starts_with(" by "));
    if is_it { Ok(answer) } else { Err(Failure::fatal(format!("MA2: {call} was given {answer}"))) }
}
