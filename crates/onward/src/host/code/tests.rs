//! Records that arrive while the code is not quiescent: its shell or a read has it.

use std::sync::Mutex;

use onward_core::event::{SignalAwaited, SignalReceived};
use onward_core::{Event, Index, Payload, Record};
use serde_json::json;

use super::*;
use crate::agent::{AgentCtx, Role, Turn};
use crate::registry::erase_code;
use crate::shell::{Activation, CallFuture, Opened};
use crate::testing::world::{World, default_key};

/// A shell that keeps the code that it must play.
#[derive(Default)]
struct Kept(Mutex<Option<Arc<ShellCode>>>);

impl Kept {
    fn code(&self) -> Arc<ShellCode> {
        self.0.lock().unwrap().clone().unwrap()
    }
}

impl Shell for Kept {
    fn activate(&self, code: &Arc<ShellCode>, _: Activation) {
        *self.0.lock().unwrap() = Some(code.clone());
    }

    fn query(&self, _: &Arc<ShellCode>, _: Query) {}

    fn close(&self, _: &Arc<ShellCode>) {}
}

fn receive(code: &ShellCode, name: &str) -> Opened {
    let encode = |value: crate::Result<serde_json::Value>| value.map(|value| Payload::json(&value).unwrap());
    code.open(|ctx, _| Box::pin(CallFuture::durable(ctx.signal(name).recv(), encode))).unwrap()
}

fn last(world: &World) -> Record {
    world.log().records().last().unwrap().clone()
}

fn draft(need: Need) -> CommitDraft {
    let Need::Commit(draft) = need else { panic!("{need:?}") };
    draft
}

#[test]
fn inputs_that_arrive_while_an_activation_is_out_are_seen_after_its_commit() {
    let shell = Arc::new(Kept::default());
    let handler = Handler {
        function: UserFunction::Shell(shell.clone()),
        is_agent: false,
        record_inputs: false,
        checks: Default::default(),
    };
    let input = Payload::json(&json!(null)).unwrap();
    let mut world =
        World::with_handler(default_key(), handler.clone(), input, WorkerShared::default(), 7).without_shadow_replay();
    let mut code = Code::new(default_key(), handler, &WorkerShared::default());
    code.feed(last(&world));
    assert!(matches!(code.advance(Waker::noop()), Ok(Need::Shell)));
    assert!(matches!(receive(&shell.code(), "a"), Opened::Waits(0)));
    world.signal("a", &json!(1));
    code.feed(last(&world));
    assert!(matches!(receive(&shell.code(), "b"), Opened::Waits(1)), "OT2");
    shell.code().hand_back(None);
    let draft = draft(code.advance(Waker::noop()).unwrap());
    assert_eq!(draft.horizon, Index(0));
    assert!(draft.events.iter().all(|event| matches!(event, Event::SignalAwaited(SignalAwaited { .. }))), "{draft:?}");
    assert!(world.commit(draft));
    // A replay makes the same calls.
    let mut replayed = Code::new(default_key(), code.handler.clone(), &WorkerShared::default());
    world.log().records().iter().for_each(|record| replayed.feed(record.clone()));
    assert!(matches!(replayed.advance(Waker::noop()), Ok(Need::Shell)));
    receive(&shell.code(), "a");
    receive(&shell.code(), "b");
    shell.code().hand_back(None);
    assert!(matches!(replayed.advance(Waker::noop()), Ok(Need::Shell)), "the answer to `a`");
}

/// Reads the conversation and looks for a signal in its second turn.
async fn looks(ctx: AgentCtx, (): ()) -> crate::Result<bool> {
    ctx.turns(0u32, async |turn| {
        if turn == 0 {
            ctx.append(Role::User, "hello").await?;
            return Ok(Turn::Next(1));
        }
        assert_eq!(ctx.messages().await?.len(), 1);
        Ok(Turn::Done(ctx.signal("stop").try_recv::<bool>()?.is_some()))
    })
    .await
}

#[test]
fn inputs_that_arrive_while_the_conversation_is_read_are_seen_after_the_next_commit() {
    let mut world = World::new_agent(looks, &());
    while world.generation() < 2 {
        let draft = world.activate().unwrap().unwrap();
        world.commit(draft);
    }
    world.crash();
    let handler = erase_code(looks);
    let play = |world: &mut World, arrives: bool| {
        let mut code = Code::new(default_key(), handler.clone(), &WorkerShared::default());
        world.log().records().iter().for_each(|record| code.feed(record.clone()));
        if let Some(generation) = code.wants_prelude() {
            code.give_prelude(world.past_logs()[generation as usize].records().to_vec());
        }
        let need = code.advance(Waker::noop()).unwrap();
        let Need::Earlier(wish) = need else { panic!("the conversation is read: {need:?}, {:?}", world.log()) };
        if arrives {
            world.signal("stop", &json!(true));
            code.feed(last(world));
        }
        let entries = world.earlier(&wish);
        code.give_earlier(wish, entries);
        code.advance(Waker::noop()).unwrap()
    };
    let draft = draft(play(&mut world, true));
    let Event::SignalReceived(SignalReceived { .. }) = &last(&world).events[0] else { panic!("{:?}", last(&world)) };
    assert!(draft.horizon < last(&world).index, "{draft:?}");
    if world.commit(draft) {
        let need = play(&mut world, false);
        assert!(!matches!(need, Need::Earlier(_)), "{need:?}");
    }
}
