//! The requests of callers, with arguments as JSON text.
//!
//! One line for each in [`request`]. The verbs of the API table are reachable by their method names, too.

use std::collections::BTreeMap;
use std::time::Duration;

use onward::{Decide, Index, Onward, RunHandle, RunInput, StartTask, Status};
use onward_core::budget::Budget;
use onward_core::conversation::EntryCursor;
use onward_core::live::LogCursor;
use onward_core::{Hash, Payload, Timestamp};
use onward_store::sync::random_u64;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{BridgeError, FailureText, failure_text, payload_of, text_of};
use crate::table;
use crate::verbs::{AttributeText, TaskArguments, arguments, effect_class, null, present, read, retry};

type Raw = Box<RawValue>;
type Result<T, E = BridgeError> = std::result::Result<T, E>;

arguments! {
    Start {
        kind: String,
        #[serde(default = "null")]
        input: Raw,
        id: Option<String>,
        version: Option<String>,
        #[serde(default)]
        attributes: BTreeMap<String, AttributeText>,
        budget: Option<Budget>,
        deadline_ms: Option<u64>,
        at: Option<Timestamp>,
        after_ms: Option<u64>,
        queue: Option<String>,
        key: Option<String>,
        priority: Option<i32>,
        trace: Option<String>,
        signal: Option<StartSignal>,
    }
    StartSignal { name: String, #[serde(default = "null")] value: Raw, id: Option<String> }
    OfRun { run: String }
    Signal { run: String, name: String, #[serde(default = "null")] value: Raw, id: Option<String> }
    Message { run: String, value: Raw, id: Option<String> }
    AppendEntry { run: String, role: String, content: Raw, id: Option<String> }
    Query { run: String, name: String, #[serde(default = "null")] input: Raw }
    Update { run: String, name: String, #[serde(default = "null")] input: Raw, id: Option<String> }
    Wait { run: String, #[serde(default)] status: Vec<Status>, state: Option<StateIs> }
    StateIs { key: String, #[serde(default, deserialize_with = "present")] value: Option<Raw> }
    Reason { run: String, #[serde(default)] reason: String }
    Resume { run: String, budget: Option<Budget> }
    Retry { run: String, #[serde(default)] reason: String, id: Option<String>, #[serde(default)] include_outcome_unknown: bool }
    Fork {
        run: String,
        index: Option<u64>,
        generation: Option<u32>,
        id: Option<String>,
        #[serde(default)]
        drop_signals: bool,
        #[serde(default)]
        restart_children: bool,
        version: Option<String>,
        reason: Option<String>,
        #[serde(default)]
        include_outcome_unknown: bool,
    }
    Decision {
        approval: String,
        approved: Option<bool>,
        feedback: Option<String>,
        decided_by: Option<String>,
        id: Option<String>,
        #[serde(default, deserialize_with = "present")]
        answer: Option<Raw>,
    }
    Resolve { promise: String, #[serde(default = "null")] value: Raw, id: Option<String> }
    Reject { promise: String, failure: Option<FailureText>, id: Option<String> }
    OfTask { task: String }
    CancelTask { task: String, #[serde(default)] reason: String }
    LogOf { run: String, generation: Option<u32> }
    EntriesOf { run: String, limit: Option<usize>, before: Option<Hash>, leaf: Option<Hash> }
    Watch { run: String, from: Option<u64>, after: Option<LogCursor> }
    Stream { run: String, offset: Option<String> }
    Attach { run: String, #[serde(default)] from: u64 }
    Drive { run: String, signal: Option<StartSignal> }
}

#[derive(Serialize)]
struct Id<'a> {
    id: &'a str,
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| BridgeError::arguments("the reply", &error))
}

fn id_or_random(id: Option<String>) -> String {
    id.unwrap_or_else(|| format!("{:016x}", random_u64()))
}

fn plain(value: Raw) -> Result<String> {
    Ok(Box::<str>::from(value).into_string())
}

/// Executes a request; `item` receives what it streams.
pub(crate) async fn request(onward: Onward, verb: &str, text: &str, item: impl Fn(String)) -> Result<String> {
    let run = |id: &str| onward.run::<Raw>(id).map_err(BridgeError::from);
    match verb {
        "start" => json(&Id { id: start(&onward, read(verb, text)?).await?.id() }),
        "run" => {
            let run = start(&onward, read(verb, text)?).await?;
            item(json(&Id { id: run.id() })?);
            plain(run.result().await?)
        }
        "result" => plain(run(&read::<OfRun>(verb, text)?.run)?.result().await?),
        "signal" => {
            let Signal { run: to, name, value, id } = read(verb, text)?;
            let signal = run(&to)?.signal(name.as_str(), &value);
            json(&id.into_iter().fold(signal, |signal, id| signal.id(id)).await?)
        }
        "message" => {
            let Message { run: to, value, id } = read(verb, text)?;
            let message = run(&to)?.message(&value);
            json(&id.into_iter().fold(message, |message, id| message.id(id)).await?)
        }
        "append" => {
            let AppendEntry { run: to, role, content, id } = read(verb, text)?;
            let append = run(&to)?.append(&role, &content);
            json(&id.into_iter().fold(append, |append, id| append.id(id)).await?)
        }
        "query" => {
            let Query { run: of, name, input } = read(verb, text)?;
            plain(run(&of)?.query(&name, &input).await?)
        }
        "update" => {
            let Update { run: of, name, input, id } = read(verb, text)?;
            let update = run(&of)?.update::<Raw>(&name, &input);
            plain(id.into_iter().fold(update, |update, id| update.id(id)).await?)
        }
        "view" => json(&run(&read::<OfRun>(verb, text)?.run)?.view().await?),
        "wait" => wait(&onward, read(verb, text)?).await,
        "cancel" | "terminate" | "pause" => {
            let Reason { run: of, reason } = read(verb, text)?;
            let run = run(&of)?;
            json(&match verb {
                "cancel" => run.cancel(&reason).await?,
                "terminate" => run.terminate(&reason).await?,
                _ => run.pause(&reason).await?,
            })
        }
        "resume" => {
            let Resume { run: of, budget } = read(verb, text)?;
            json(&match budget {
                Some(budget) => run(&of)?.resume_with(budget).await?,
                None => run(&of)?.resume().await?,
            })
        }
        "retry" => {
            let Retry { run: of, reason, id, include_outcome_unknown } = read(verb, text)?;
            let retry = run(&of)?.retry(&reason);
            let retry = id.into_iter().fold(retry, |retry, id| retry.id(id));
            json(&if include_outcome_unknown { retry.include_outcome_unknown() } else { retry }.await?)
        }
        "fork" | "reset" => fork(&onward, verb, read(verb, text)?).await,
        "approve" | "disapprove" | "decide" => {
            let Decision { approval, approved, feedback, decided_by, id, answer } = read(verb, text)?;
            let approved = decision(verb, approved)?;
            let answer = answer.map(payload_of);
            let decide = Decide { approved, feedback, decided_by, answer, decision_id: id_or_random(id) };
            json(&onward.decide_approval(&approval, decide).await?)
        }
        "resolve" => {
            let Resolve { promise, value, id } = read(verb, text)?;
            json(&onward.resolve(&promise, &value, &id_or_random(id)).await?)
        }
        "reject" => {
            let Reject { promise, failure, id } = read(verb, text)?;
            let no_failure = || BridgeError::refused(verb, "`failure` is missing", "give `failure`, or use `resolve`");
            let failure = failure.ok_or_else(no_failure)?;
            json(&onward.reject(&promise, failure.into_failure(), &id_or_random(id)).await?)
        }
        "start_task" => start_task(&onward, read(verb, text)?).await,
        "task_result" => plain(onward.task_handle::<Raw>(&read::<OfTask>(verb, text)?.task)?.result().await?),
        "task_view" => json(&onward.task_handle::<Raw>(&read::<OfTask>(verb, text)?.task)?.view().await?),
        "task_cancel" => {
            let CancelTask { task, reason } = read(verb, text)?;
            json(&onward.task_handle::<Raw>(&task)?.cancel(&reason).await?)
        }
        "log" => {
            let LogOf { run: of, generation } = read(verb, text)?;
            json(&match generation {
                Some(generation) => run(&of)?.log_of(generation).await?,
                None => run(&of)?.log().await?,
            })
        }
        "entries" => {
            let EntriesOf { run: of, limit, before, leaf } = read(verb, text)?;
            let entries = run(&of)?.entries();
            let entries = limit.into_iter().fold(entries, |entries, limit| entries.limit(limit));
            let entries = before.into_iter().fold(entries, |entries, before| entries.before(EntryCursor::from(before)));
            let entries = leaf.into_iter().fold(entries, |entries, leaf| entries.leaf(EntryCursor::from(leaf)));
            json(&entries.pages().next().await?.unwrap_or_default())
        }
        "watch" => {
            let Watch { run: of, from, after } = read(verb, text)?;
            let mut live = match (from, after) {
                (None, Some(after)) => run(&of)?.watch_after(after).await?,
                (from, None) => run(&of)?.watch(Index(from.unwrap_or(0))).await?,
                (Some(_), Some(_)) => {
                    return Err(BridgeError::refused(verb, "it has both `from` and `after`", "give one of them"));
                }
            };
            while let Some(frame) = live.next().await? {
                item(json(&frame)?);
            }
            Ok("null".to_owned())
        }
        "stream" => {
            let Stream { run: of, offset } = read(verb, text)?;
            let mut stream = run(&of)?.stream(offset);
            while let Some(frame) = stream.next().await? {
                item(json(&frame)?);
            }
            Ok("null".to_owned())
        }
        "attach" => {
            let Attach { run: of, from } = read(verb, text)?;
            let mut attached = run(&of)?.attach(Index(from)).await?;
            while let Some(record) = attached.next().await? {
                item(json(&record)?);
            }
            Ok("null".to_owned())
        }
        "drive" => drive(&onward, read(verb, text)?).await,
        _ => table::request(&onward, verb, text).await,
    }
}

/// Returns the decision of a request. The words `approve` and `disapprove` are decisions; with `decide` it is a field.
fn decision(verb: &str, approved: Option<bool>) -> Result<bool> {
    let refused = |why: &str| Err(BridgeError::refused(verb, why, "use `approve` or `disapprove`, or `decide` with `approved`"));
    match (verb, approved) {
        ("approve", Some(false)) => refused("`approved` is false"),
        ("disapprove", Some(true)) => refused("`approved` is true"),
        ("approve", _) => Ok(true),
        ("disapprove", _) => Ok(false),
        (_, Some(approved)) => Ok(approved),
        (_, None) => refused("`approved` is missing"),
    }
}

async fn start(onward: &Onward, arguments: Start) -> Result<RunHandle<Raw>> {
    let Start { kind, input, id, version, attributes, budget, deadline_ms, at, after_ms, queue, key, priority, trace, signal } =
        arguments;
    let start = onward.start::<Raw, _>(kind.as_str(), &input);
    let start = id.into_iter().fold(start, |start, id| start.id(id));
    let start = version.into_iter().fold(start, |start, version| start.version(version));
    let start = attributes.into_iter().fold(start, |start, (name, value)| start.attribute(&name, value.into_value()));
    let start = budget.into_iter().fold(start, |start, budget| start.budget(budget));
    let start = deadline_ms.into_iter().fold(start, |start, limit| start.deadline(Duration::from_millis(limit)));
    let start = at.into_iter().fold(start, |start, time| start.at(time));
    let start = after_ms.into_iter().fold(start, |start, delay| start.after(Duration::from_millis(delay)));
    let start = queue.iter().fold(start, |start, queue| start.queue(queue));
    let start = key.iter().fold(start, |start, key| start.key(key));
    let start = priority.into_iter().fold(start, |start, priority| start.priority(priority));
    let start = trace.into_iter().fold(start, |start, trace| start.trace(trace));
    let start = signal.into_iter().fold(start, |start, StartSignal { name, value, id }| {
        let start = start.signal(name.as_str(), &value);
        id.into_iter().fold(start, |start, id| start.signal_id(id))
    });
    Ok(start.await?)
}

async fn wait(onward: &Onward, Wait { run, status, state }: Wait) -> Result<String> {
    if status.is_empty() && state.is_none() {
        let hint = "give `status` or `state`; to wait for the end, use `result`";
        return Err(BridgeError::refused("wait", "it has neither `status` nor `state`", hint));
    }
    let wanted = state.as_ref().and_then(|state| state.value.as_ref());
    let wanted = wanted.map(|value| Payload::from_json_text(value.get().to_owned()).canonical());
    let run: RunHandle<Raw> = onward.run(&run)?;
    let view = run.until(|view| {
        let has_state = state.as_ref().is_some_and(|state| {
            let value = view.state.iter().find(|(key, _)| key.as_str() == state.key).map(|(_, value)| value.canonical());
            value.is_some_and(|value| wanted.as_ref().is_none_or(|wanted| *wanted == value))
        });
        has_state || status.contains(&view.head.status)
    });
    json(&view.await?)
}

async fn fork(onward: &Onward, verb: &str, arguments: Fork) -> Result<String> {
    let Fork { run, index, generation, id, drop_signals, restart_children, version, reason, include_outcome_unknown } = arguments;
    let run: RunHandle<Raw> = onward.run(&run)?;
    let fork = if verb == "fork" { run.fork() } else { run.reset() };
    let fork = index.into_iter().fold(fork, |fork, index| fork.at(Index(index)));
    let fork = generation.into_iter().fold(fork, |fork, generation| fork.of_generation(generation));
    let fork = id.into_iter().fold(fork, |fork, id| fork.id(id));
    let fork = if drop_signals { fork.drop_signals() } else { fork };
    let fork = if restart_children { fork.restart_children() } else { fork };
    let fork = version.into_iter().fold(fork, |fork, version| fork.version(version));
    let fork = reason.into_iter().fold(fork, |fork, reason| fork.reason(reason));
    let fork = if include_outcome_unknown { fork.include_outcome_unknown() } else { fork };
    json(&Id { id: fork.await?.id() })
}

async fn start_task(onward: &Onward, arguments: TaskArguments) -> Result<String> {
    let TaskArguments {
        kind, input, id, queue, key, priority, retry: policy, idempotency_key, costs, class, trace, memo, ..
    } = arguments;
    if memo.is_some() {
        let hint = "leave it out, or call the task in a run";
        return Err(BridgeError::refused("start_task", "a task without a run has no memo", hint));
    }
    let class = class.as_deref().map(effect_class).transpose()?;
    let ms = Duration::from_millis;
    let task = onward.task::<Raw, _>(kind.as_str(), &input);
    let task = id.into_iter().fold(task, |task, id| task.id(id));
    let task = queue.into_iter().fold(task, |task, queue| task.queue(queue));
    let task = key.into_iter().fold(task, |task, key| task.key(key));
    let task = priority.into_iter().fold(task, StartTask::priority);
    let task = policy.into_iter().fold(task, |task, policy| task.retry(retry(policy)));
    let task = arguments.timeout_ms.into_iter().fold(task, |task, timeout| task.timeout(ms(timeout)));
    let task = arguments.total_timeout_ms.into_iter().fold(task, |task, timeout| task.total_timeout(ms(timeout)));
    let task = arguments.queued_timeout_ms.into_iter().fold(task, |task, timeout| task.queued_timeout(ms(timeout)));
    let task = arguments.heartbeat_ms.into_iter().fold(task, |task, timeout| task.heartbeat(ms(timeout)));
    let task = idempotency_key.into_iter().fold(task, |task, key| task.idempotency_key(key));
    let task = trace.into_iter().fold(task, |task, trace| task.trace(trace));
    let task = if costs { task.costs() } else { task };
    let task = class.into_iter().fold(task, StartTask::class);
    json(&Id { id: task.await?.id() })
}

async fn drive(onward: &Onward, Drive { run, signal }: Drive) -> Result<String> {
    let input = signal.map_or_else(RunInput::nothing, |StartSignal { name, value, id }| {
        let input = RunInput::signal(name.as_str(), &value);
        id.into_iter().fold(input, |input, id| input.id(id))
    });
    let (state, view, result) = match onward.drive(&run, input).await? {
        onward::Driven::Waiting(view) => ("waiting", Some(view), None),
        onward::Driven::Paused(view) => ("paused", Some(view), None),
        onward::Driven::Ended(result) => ("ended", None, Some(result)),
    };
    let text = |text: String| RawValue::from_string(text).ok();
    let (output, failure) = match result {
        Some(Ok(output)) => (text(text_of(&output)), None),
        Some(Err(failure)) => (None, text(failure_text(&failure))),
        None => (None, None),
    };
    json(&serde_json::json!({"state": state, "view": view, "output": output, "failure": failure}))
}
