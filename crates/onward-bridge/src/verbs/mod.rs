//! The verbs of code: the functions of `ctx`, with arguments as JSON text.
//!
//! One line for each in [`call`]. Must never decide: every verb calls one function of [`onward::Ctx`].

mod agent;
mod arguments;
mod waits;

use std::pin::Pin;
use std::sync::Arc;

use onward::agent::AgentCtx;
use onward::ctx::SignalSource;
use onward::shell::{Call, Opened, ShellCode, Stopped};
use onward::{Failure, TaskCtx};
use onward_core::conversation::MESSAGE;
use onward_core::spend::Spend;
use onward_core::{ErrorCode, Payload};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::Called;
use crate::error::{BridgeError, FailureText, outcome_text, payload_of, text_of};
use crate::host::Host;
use arguments::*;
pub(crate) use arguments::{AttributeText, Retry, TaskArguments, arguments, null, present, read, retry};
pub(crate) use waits::effect_class;

type Raw = Box<RawValue>;
type BoxCall = Pin<Box<dyn Call>>;
type Result<T, E = BridgeError> = std::result::Result<T, E>;

/// The code of one run while it makes a call.
pub(crate) struct Caller<'a> {
    pub host: &'a Arc<Host>,
    pub code: &'a Arc<ShellCode>,
}

fn stopped(stopped: Stopped) -> BridgeError {
    match stopped {
        Stopped::Unwind => BridgeError::stopped(),
        Stopped::Outside => BridgeError::new(
            ErrorCode::ContextMisused,
            "the context of a workflow was used outside of its code: in a step, a task, a query, another thread, or after its end",
        ),
    }
}

fn json(value: impl Serialize) -> Result<Called> {
    let text = serde_json::to_string(&value).map_err(|error| BridgeError::arguments("the reply", &error))?;
    Ok(Called::Value(text))
}

/// Encodes the failure of a call that does not wait as an error with that failure.
fn failed(failure: Failure) -> BridgeError {
    BridgeError::failure(&failure)
}

impl Caller<'_> {
    /// Makes a call that does not wait.
    fn with<T>(&self, make: impl FnOnce(&AgentCtx) -> T) -> Result<T> {
        self.code.with(make).map_err(stopped)
    }

    fn value<T: Serialize>(&self, make: impl FnOnce(&AgentCtx) -> T) -> Result<Called> {
        json(self.with(make)?)
    }

    /// Makes a call that does not wait and may fail.
    fn attempt<T: Serialize>(&self, make: impl FnOnce(&AgentCtx) -> onward::Result<T>) -> Result<Called> {
        json(self.with(make)?.map_err(failed)?)
    }

    /// Reads a value, at any time.
    fn read<T: Serialize>(&self, read: impl FnOnce(&AgentCtx) -> T) -> Result<Called> {
        json(self.code.read(read).map_err(stopped)?)
    }

    /// Makes a call that waits.
    fn wait(&self, make: impl FnOnce(&AgentCtx, u32) -> BoxCall) -> Result<Called> {
        self.wait_with(|ctx, number| (make(ctx, number), "{}".to_owned()))
    }

    /// Makes a call that waits, and passes on what is known about it.
    fn wait_with(&self, make: impl FnOnce(&AgentCtx, u32) -> (BoxCall, String)) -> Result<Called> {
        let mut info = String::new();
        let open = |ctx: &AgentCtx, number: u32| {
            let (call, known) = make(ctx, number);
            info = known;
            call
        };
        let (opened, step) = self.host.starting(|| self.code.open(open));
        Ok(match (opened.map_err(stopped)?, step) {
            (Opened::Waits(_), Some(step)) => Called::Step(step),
            (Opened::Waits(call), None) => Called::Waits { call, info },
            (Opened::Answered(call, result), _) => Called::Answered { call, result: outcome_text(&result) },
        })
    }
}

/// Makes one call of the code.
pub(crate) fn call(caller: &Caller<'_>, verb: &str, text: &str) -> Result<Called> {
    match verb {
        // Values
        "uuid" => caller.value(|ctx| ctx.uuid()),
        "random" => caller.value(|ctx| ctx.random().to_string()),
        "version" => {
            let Version { change, min, max } = read(verb, text)?;
            caller.value(|ctx| ctx.version(&change, min, max))
        }
        "is_canceled" => caller.read(|ctx| ctx.is_canceled()),
        "trace" => caller.read(|ctx| ctx.trace().map(|trace| trace.to_string())),
        // Signals
        "has" => mailbox(caller, verb, text, |ctx, name| ctx.signal(name).has(), |ctx, name| ctx.signals(name).has()),
        "count" => mailbox(caller, verb, text, |ctx, name| ctx.signal(name).count(), |ctx, name| ctx.signals(name).count()),
        "try_recv" => try_recv(caller, read(verb, text)?),
        "drain" => drain(caller, read(verb, text)?),
        "send_signal" => {
            let SendSignal { run, name, value } = read(verb, text)?;
            caller.attempt(|ctx| ctx.send_signal(&run, &name, &value))
        }
        // State, attributes, readers
        "state_set" => {
            let StateSet { key, value } = read(verb, text)?;
            caller.attempt(|ctx| ctx.state().set(&key, &value))
        }
        "state_get" => {
            let Key { key } = read(verb, text)?;
            let value = caller.code.read(|ctx| ctx.state().get::<Raw>(&key)).map_err(stopped)?.map_err(failed)?;
            json(value.map(|value| Value { value }))
        }
        "state_clear" => {
            let Key { key } = read(verb, text)?;
            caller.value(|ctx| ctx.state().clear(&key))
        }
        "state_keys" => caller.read(|ctx| ctx.state().keys()),
        "attribute_set" => {
            let AttributeSet { name, value } = read(verb, text)?;
            caller.value(|ctx| ctx.attributes().set(&name, value.into_value()))
        }
        "attribute_clear" => {
            let Named { name } = read(verb, text)?;
            caller.value(|ctx| ctx.attributes().clear(&name))
        }
        "emit" => {
            let Emit { name, value, internal, meta } = read(verb, text)?;
            let sent = caller.code.emit(|ctx| {
                let emission = ctx.emission(&name, &value);
                let emission = if internal { emission.internal() } else { emission };
                meta.iter().fold(emission, |emission, meta| emission.meta(meta))
            });
            json(sent.map_err(stopped)?.map_err(failed)?)
        }
        // Children that are not awaited
        "spawn" => {
            let Spawn { kind, input, budget } = read(verb, text)?;
            let run = caller.with(|ctx| match budget {
                Some(budget) => ctx.spawn_within::<Raw>(kind.as_str(), &input, budget),
                None => ctx.spawn::<Raw>(kind.as_str(), &input),
            })?;
            json(Run { run: run.map_err(failed)?.run_id().to_string() })
        }
        "spawned_message" => {
            let RunMessage { run, value } = read(verb, text)?;
            caller.attempt(|ctx| ctx.send_signal(&run, MESSAGE, &value))
        }
        "spawned_cancel" => {
            let spawned = spawned(&read::<Run>(verb, text)?.run)?;
            caller.value(|ctx| spawned.cancel(ctx))
        }
        "parent_message" => {
            let Input { value } = read(verb, text)?;
            caller.attempt(|ctx| ctx.parent().map_or(Ok(()), |parent| parent.message(&value)))
        }
        // Budgets
        "set_budget" => {
            let SetBudget { budget } = read(verb, text)?;
            caller.value(|ctx| ctx.set_budget(budget))
        }
        "spent" => caller.read(|ctx| ctx.spent()),
        "budget_left" => caller.read(|ctx| ctx.budget_left()),
        // Handlers
        "update" => {
            let Named { name } = read(verb, text)?;
            let kept = caller.code.register_update(&name).map_err(stopped)?;
            let kept = kept.into_iter().map(|update| Ok(KeptUpdate { update: update.update_id, input: raw(&update.payload)? }));
            json(kept.collect::<Result<Vec<_>>>()?)
        }
        "update_accept" => {
            let UpdateAccept { update } = read(verb, text)?;
            caller.code.accept_update(&update).map_err(stopped)?;
            json(())
        }
        "update_answer" => {
            let UpdateAnswer { update, result, failure } = read(verb, text)?;
            let result = match (result, failure) {
                (Some(result), None) => Ok(payload_of(result)),
                (None, Some(failure)) => Err(FailureText::into_failure(failure)),
                _ => {
                    return Err(BridgeError::refused(
                        verb,
                        "it has both `result` and `failure`, or neither",
                        "give either `result` or `failure`",
                    ));
                }
            };
            caller.code.answer_update(&update, result).map_err(stopped)?;
            json(())
        }
        "on_failure" => waits::on_failure(caller, read(verb, text)?),
        "drop" => {
            let Number { call } = read(verb, text)?;
            caller.code.drop_call(call).map_err(stopped)?;
            json(())
        }
        "cancel" => {
            let Number { call } = read(verb, text)?;
            let outcome = caller.code.cancel_call(call).map_err(stopped)?;
            json(outcome.map(cancel_outcome))
        }
        "misuse" => {
            let Misuse { message } = read(verb, text)?;
            caller.code.misuse(&message);
            Err(BridgeError::stopped())
        }
        // Calls that wait
        "step" => waits::step(caller, read(verb, text)?),
        "task" => waits::task(caller, read(verb, text)?),
        "sleep" => waits::sleep(caller, read(verb, text)?),
        "recv" => waits::recv(caller, read(verb, text)?),
        "approval" => waits::approval(caller, read(verb, text)?),
        "promise" => waits::promise(caller, read(verb, text)?),
        "child" => waits::child(caller, read(verb, text)?),
        "spawned_result" => waits::spawned_result(caller, &read::<Run>(verb, text)?.run),
        "canceled" => waits::canceled(caller),
        "updates_finished" => waits::updates_finished(caller),
        "continue_as_new" => waits::continue_as_new(caller, read(verb, text)?),
        _ if caller.code.is_agent() => agent::call(caller, verb, text),
        _ => Err(unknown(verb)),
    }
}

/// Calls a function of the context of a task; `None` if the task is over.
pub(crate) fn of_task(ctx: Option<&TaskCtx>, verb: &str, text: &str) -> Result<String> {
    match verb {
        "heartbeat" => {
            let Progress { progress } = read(verb, text)?;
            ctx.iter().for_each(|ctx| ctx.heartbeat(&progress));
        }
        "spend" => {
            let spend: Spend = read(verb, text)?;
            ctx.iter().for_each(|ctx| ctx.spend(spend.clone()));
        }
        "stream" => {
            let Frame { frame } = read(verb, text)?;
            ctx.iter().for_each(|ctx| ctx.stream(&frame));
        }
        "is_canceled" => return Ok(ctx.is_none_or(TaskCtx::is_canceled).to_string()),
        _ => return Err(unknown(verb)),
    }
    Ok("null".to_owned())
}

fn unknown(verb: &str) -> BridgeError {
    BridgeError::arguments("the call", &format!("there is no verb `{verb}` for this code"))
}

fn raw(payload: &Payload) -> Result<Raw> {
    RawValue::from_string(text_of(payload)).map_err(|error| BridgeError::arguments("a recorded value", &error))
}

fn cancel_outcome(outcome: onward::CancelOutcome) -> &'static str {
    match outcome {
        onward::CancelOutcome::Canceled => "canceled",
        onward::CancelOutcome::AlreadyCompleted => "already_completed",
        onward::CancelOutcome::AlreadyCanceled => "already_canceled",
    }
}

/// Returns the handle of a spawned child.
fn spawned(run: &str) -> Result<onward::ctx::Spawned<Raw>> {
    serde_json::from_value(serde_json::Value::from(run)).map_err(|error| BridgeError::arguments("the run", &error))
}

/// Polls the mailbox of a name, or of a pattern.
fn mailbox<T: Serialize>(
    caller: &Caller<'_>,
    verb: &str,
    text: &str,
    named: impl FnOnce(&AgentCtx, &str) -> T,
    like: impl FnOnce(&AgentCtx, &str) -> T,
) -> Result<Called> {
    let mailbox: Mailbox = read(verb, text)?;
    match mailbox.which()? {
        Which::Signal(name) => caller.value(|ctx| named(ctx, &name)),
        Which::Pattern(pattern) => caller.value(|ctx| like(ctx, &pattern)),
    }
}

fn try_recv(caller: &Caller<'_>, mailbox: Mailbox) -> Result<Called> {
    match mailbox.which()? {
        Which::Signal(name) => {
            let taken = caller.with(|ctx| ctx.signal(name.as_str()).try_recv::<Raw>())?.map_err(failed)?;
            json(taken.map(|value| NamedValue { name, value }))
        }
        Which::Pattern(pattern) => {
            let taken = caller.with(|ctx| ctx.signals(&pattern).try_recv::<Raw>())?.map_err(failed)?;
            json(taken.map(|(name, value)| NamedValue { name: name.to_string(), value }))
        }
    }
}

fn drain(caller: &Caller<'_>, mailbox: Mailbox) -> Result<Called> {
    match mailbox.which()? {
        Which::Signal(name) => {
            let source = |ctx: &AgentCtx| -> onward::Result<Vec<Received>> {
                let source: SignalSource<_> = ctx.signal(name.as_str());
                let drained = source.drain_with_sender::<Raw>()?;
                let received = drained.into_iter().map(|signal| Received {
                    name: name.clone(),
                    from: signal.from.map(|from| from.to_string()),
                    value: signal.value,
                });
                Ok(received.collect())
            };
            caller.attempt(source)
        }
        Which::Pattern(pattern) => caller.attempt(|ctx| {
            let drained = ctx.signals(&pattern).drain::<Raw>()?;
            let received = drained.into_iter().map(|(name, value)| Received { name: name.to_string(), from: None, value });
            Ok(received.collect::<Vec<_>>())
        }),
    }
}
