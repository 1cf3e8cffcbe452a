//! Code in another language: what its shell gets, when, and what it may do.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use onward::Failure;
use onward::shell::{Activation, Call, CallFuture, Opened, Query, Shell, ShellCode, Stopped};
use onward::testing::World;
use onward_core::Payload;
use onward_core::event::CancelRequested;
use serde_json::Value;
use serde_json::value::RawValue;

/// What the worker gives to a shell.
enum Given {
    Activation(Arc<ShellCode>, Activation),
    Close(Arc<ShellCode>),
}

struct Channel(Mutex<Sender<Given>>);

impl Shell for Channel {
    fn activate(&self, code: &Arc<ShellCode>, activation: Activation) {
        drop(self.0.lock().unwrap().send(Given::Activation(code.clone(), activation)));
    }
    fn query(&self, _: &Arc<ShellCode>, _: Query) {}
    fn close(&self, code: &Arc<ShellCode>) {
        drop(self.0.lock().unwrap().send(Given::Close(code.clone())));
    }
}

/// Runs a world whose shell is `play`, which gets every activation and hands it back.
fn with_shell(play: impl FnMut(Receiver<Given>) + Send + 'static) -> (World, JoinHandle<()>) {
    let (sender, given) = channel();
    let mut play = play;
    let thread = std::thread::spawn(move || play(given));
    (World::foreign(Arc::new(Channel(Mutex::new(sender))), false, &Value::Null), thread)
}

fn raw(result: onward::Result<Box<RawValue>>) -> onward::Result<Payload> {
    result.and_then(|value| Ok(Payload::json(&value)?))
}

fn recv(code: &ShellCode, name: &'static str) -> Result<Opened, Stopped> {
    code.open(|ctx, _| {
        let recv = ctx.signal(name).recv::<Box<RawValue>>();
        Box::pin(CallFuture::durable(recv, raw)) as std::pin::Pin<Box<dyn Call>>
    })
}

fn waits(opened: Result<Opened, Stopped>) -> u32 {
    match opened {
        Ok(Opened::Waits(call)) => call,
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_come_one_at_a_time_in_the_order_of_the_log() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = seen.clone();
    let (mut world, thread) = with_shell(move |given| {
        for given in given {
            let Given::Activation(code, activation) = given else { return };
            match activation {
                Activation::Start(_) => ["a", "b", "c"].into_iter().for_each(|name| assert!(recv(&code, name).is_ok())),
                Activation::Answer { call, result } => {
                    log.lock().unwrap().push(format!("{call} {:?}", result.map_err(|failure| failure.code)));
                    assert!(matches!(recv(&code, "none"), Ok(Opened::Waits(_))), "the code may call in each of them");
                }
                Activation::Update(_) => panic!("there is no update"),
            }
            code.hand_back(None);
        }
    });
    world.run_until_idle().unwrap();
    // Both are in one batch, and are answered in the order in which they came (OT1).
    world.signal("c", &1);
    world.signal("a", &2);
    world.run_until_idle().unwrap();
    assert_eq!(*seen.lock().unwrap(), ["2 Ok(1)", "0 Ok(2)"]);
    // One event interrupts all waits: each is an activation of its own, in the order of the calls.
    world.input(CancelRequested::new(String::new())).unwrap();
    world.run_until_idle().unwrap();
    let seen: Vec<_> = seen.lock().unwrap().split_off(2);
    assert_eq!(seen, ["1 Err(\"canceled\")", "3 Err(\"canceled\")", "4 Err(\"canceled\")"]);
    drop(world);
    thread.join().unwrap();
}

#[test]
fn a_call_that_the_code_drops_gets_no_answer_that_is_on_its_way() {
    let answered: Arc<Mutex<Vec<u32>>> = Arc::default();
    let log = answered.clone();
    let (mut world, thread) = with_shell(move |given| {
        for given in given {
            let Given::Activation(code, activation) = given else { return };
            match activation {
                Activation::Start(_) => ["a", "b"].into_iter().for_each(|name| assert!(recv(&code, name).is_ok())),
                Activation::Answer { call, .. } => {
                    log.lock().unwrap().push(call);
                    code.drop_call(1 - call).unwrap(); // the loser of a race
                }
                Activation::Update(_) => panic!("there is no update"),
            }
            let end = log.lock().unwrap().first().map(|_| Ok(Payload::null()));
            code.hand_back(end);
        }
    });
    world.run_until_idle().unwrap();
    world.input(CancelRequested::new(String::new())).unwrap();
    world.run_until_idle().unwrap();
    assert_eq!(*answered.lock().unwrap(), [0]);
    assert_eq!(world.output(), "null");
    drop(world);
    thread.join().unwrap();
}

#[test]
fn code_makes_calls_only_while_an_activation_is_out() {
    let (mut world, thread) = with_shell(move |given| {
        let Ok(Given::Activation(code, Activation::Start(_))) = given.recv() else { panic!("the code starts") };
        assert_eq!(waits(recv(&code, "a")), 0);
        assert_eq!(waits(recv(&code, "a")), 1, "calls are numbered as they are made");
        code.hand_back(None);
        code.hand_back(Some(Ok(Payload::null()))); // none is out: does nothing
        assert_eq!(recv(&code, "b").map(drop), Err(Stopped::Outside)); // OT2
        assert_eq!(code.with(|ctx| ctx.uuid()), Err(Stopped::Outside));
        assert!(code.read(|ctx| ctx.now()).is_ok());
        let Ok(Given::Close(_)) = given.recv() else { panic!("the code is closed") };
    });
    world.run_until_idle().unwrap();
    assert!(world.outcome().is_none());
    drop(world);
    thread.join().unwrap();
}

#[test]
fn code_that_is_closed_changes_nothing() {
    let (sender, closed) = channel();
    let (mut world, thread) = with_shell(move |given| {
        let mut rounds = 0;
        for given in given {
            match given {
                Given::Activation(code, Activation::Start(_)) => {
                    waits(recv(&code, "a"));
                    code.hand_back(None);
                }
                Given::Activation(code, Activation::Answer { result, .. }) => code.hand_back(Some(result)),
                Given::Activation(_, Activation::Update(_)) => panic!("there is no update"),
                Given::Close(code) => {
                    // A coroutine that runs while it is closed, and an answer that comes late (OT3).
                    assert_eq!(recv(&code, "b").map(drop), Err(Stopped::Unwind));
                    assert_eq!(code.drop_call(0), Err(Stopped::Unwind));
                    assert_eq!(code.read(|ctx| ctx.now()), Err(Stopped::Unwind));
                    code.hand_back(Some(Err(Failure::fatal("late"))));
                    sender.send(()).unwrap();
                    rounds += 1;
                    if rounds == 2 {
                        return;
                    }
                }
            }
        }
    });
    world.run_until_idle().unwrap();
    let events = world.event_names();
    world.crash();
    closed.recv().unwrap();
    assert_eq!(world.event_names(), events);
    world.signal("a", &7);
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "7");
    drop(world);
    thread.join().unwrap();
}

#[test]
fn a_diverged_run_closes_its_code_with_the_same_report_as_in_rust() {
    let names = Arc::new(Mutex::new(vec!["second", "first"]));
    let (mut world, thread) = with_shell(move |given| {
        let mut closed = 0;
        for given in given {
            match given {
                Given::Activation(code, _) => {
                    let name = names.lock().unwrap().pop().unwrap();
                    code.with(|ctx| ctx.state().set(name, &1)).unwrap().unwrap();
                    waits(recv(&code, "a"));
                    code.hand_back(None);
                }
                Given::Close(_) if closed == 1 => return,
                Given::Close(_) => closed += 1,
            }
        }
    });
    world.run_until_idle().unwrap();
    world.crash();
    let fault = world.run_until_idle().unwrap_err();
    let message = fault.into_pause().unwrap().message;
    assert!(message.contains("`first`") && message.contains("`second`"), "{message}");
    drop(world);
    thread.join().unwrap();
}

/// Plays in the call of the driver: it receives three signals, one after the other.
struct AtOnce;

impl Shell for AtOnce {
    fn activate(&self, code: &Arc<ShellCode>, activation: Activation) {
        match activation {
            Activation::Start(_) => {
                assert!(recv(code, "a").is_ok());
                code.hand_back(None);
            }
            Activation::Answer { call: 0, .. } => {
                assert!(matches!(recv(code, "b"), Ok(Opened::Answered(1, Ok(_)))), "it is there already");
                assert!(matches!(recv(code, "c"), Ok(Opened::Waits(2))));
                code.hand_back(None);
            }
            Activation::Answer { result, .. } => code.hand_back(Some(result)),
            Activation::Update(_) => panic!("there is no update"),
        }
    }
    fn query(&self, _: &Arc<ShellCode>, _: Query) {}
    fn close(&self, _: &Arc<ShellCode>) {}
}

#[test]
fn a_shell_may_hand_back_before_it_returns() {
    let mut world = World::foreign(Arc::new(AtOnce), false, &Value::Null);
    world.run_until_idle().unwrap();
    ["b", "a"].into_iter().for_each(|name| world.signal(name, &name));
    world.run_until_idle().unwrap();
    world.signal("c", &"c");
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), r#""c""#);
}
