//! The programs: what their letters do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::agent::{AgentCtx, Turn};
use crate::{Failure, Result};

/// The signal by which people speak to the agent.
pub(super) const MESSAGE: &str = "message";

/// Whose entries come from outside.
pub(super) const GUEST: &str = "guest";

#[derive(Debug, Clone)]
pub(super) struct Program {
    turns: Vec<(Vec<[char; 2]>, char)>,
}

/// What nobody records.
#[derive(Debug, Clone, Default)]
pub(super) struct Bit(Arc<AtomicU32>);

impl Bit {
    pub fn set(&self, bit: u32) {
        self.0.store(bit, Ordering::SeqCst);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
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

    pub async fn run(self, ctx: AgentCtx, bit: Bit) -> Result<u32> {
        ctx.turns(0u32, |turn| {
            let (ctx, program) = (ctx.clone(), &self);
            async move {
                let (slots, end) = &program.turns[turn as usize];
                for slot in slots {
                    let now = bit.get();
                    operate(&ctx, slot[(now % 2) as usize], now).await?;
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

async fn operate(ctx: &AgentCtx, letter: char, bit: u32) -> Result<()> {
    match letter {
        '-' => {}
        'S' => say(ctx, "said").await?,
        'B' => say(ctx, "also said").await?,
        'K' => say(ctx, &format!("at {bit}")).await?,
        'U' => say(ctx, &ctx.uuid()).await?,
        'H' => {
            let has = ctx.signal(MESSAGE).has();
            say(ctx, if has { "somebody is there" } else { "nobody is there" }).await?;
        }
        'D' => {
            for number in ctx.signal(MESSAGE).drain::<u32>()? {
                ctx.append("user", &number).await?;
            }
        }
        'R' => {
            let number: u32 = ctx.signal(MESSAGE).recv().await?;
            ctx.append("user", &number).await?;
        }
        'L' => {
            let leaf = ctx.leaf().map(|leaf| leaf.to_string());
            let reply: String = expect(ctx.task("llm", &json!({ "leaf": leaf })).pure().await?, "llm")?;
            ctx.append("assistant", &reply).await?;
        }
        'P' => tell(ctx, expect(ctx.task("look", &1).pure().await?, "look")?).await?,
        'N' => tell(ctx, expect(ctx.task("pay", &json!({ "amount": 10 })).await?, "pay")?).await?,
        'V' => tell(ctx, expect(ctx.task("pay", &json!({ "amount": "10.0" })).await?, "pay")?).await?,
        'M' => tell(ctx, expect(ctx.task("wire", &10).at_most_once().await?, "wire")?).await?,
        'J' => {
            let (one, two) = (ctx.task::<String>("look", &"one").pure(), ctx.task::<String>("look", &"two").pure());
            let both = if bit.is_multiple_of(2) { [one, two] } else { [two, one] };
            for look in both {
                tell(ctx, look.await?).await?;
            }
        }
        'Y' => {
            let kept = ctx.task::<String>("look", &"kept").pure();
            let reply: String = expect(ctx.task("llm", &"meanwhile").pure().await?, "llm")?;
            ctx.append("assistant", &reply).await?;
            if bit.is_multiple_of(2) {
                kept.cancel();
            }
            match kept.await {
                Ok(result) => tell(ctx, result).await?,
                Err(_) => say(ctx, "given up").await?,
            }
        }
        'G' => drop(ctx.take_in().await),
        'X' => ctx.send_signal("peer", "told", &"hello")?,
        'A' => {
            let decision = ctx.approval("may-i", "May I?").await?;
            say(ctx, if decision.approved { "I may" } else { "I may not" }).await?;
        }
        'I' => tell(ctx, ctx.step("compute", async || Ok::<_, Failure>("computed".to_owned())).await?).await?,
        'C' => tell(ctx, ctx.child::<String>("helper", &1).await?).await?,
        'O' => tell(ctx, ctx.promise::<String>("answer").await?).await?,
        'Z' => ctx.sleep(Duration::from_secs(60)).await?,
        'E' => {
            let heard: Option<u32> = ctx.signal(MESSAGE).recv_timeout(Duration::from_secs(60)).await?;
            if let Some(number) = heard {
                ctx.append("user", &number).await?;
            }
        }
        other => panic!("no operation {other}"),
    }
    Ok(())
}

async fn say(ctx: &AgentCtx, text: &str) -> Result<()> {
    ctx.append("system", text).await.map(drop)
}

async fn tell(ctx: &AgentCtx, result: String) -> Result<()> {
    ctx.append("tool", &result).await.map(drop)
}

/// A result says for which kind it was made (MA2).
fn expect(result: String, kind: &str) -> Result<String> {
    if result.starts_with(kind) { Ok(result) } else { Err(Failure::fatal(format!("MA2: {kind} was given {result}"))) }
}
