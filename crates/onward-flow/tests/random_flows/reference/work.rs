//! Steps of the reference that make calls: items, attempts, time limits, questions to models.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use onward_flow::document::{Memo, MemoScope, Retry, RetryPolicy, Span, Step, Undo};
use onward_flow::expression::Scope;
use onward_flow::machine::{CallMemo, CallRequest, FlowFailure, RetryRule};
use serde_json::{Map, Value, json};

use super::step::{is_stuck, scope};
use super::{Context, Failed, PathRef, error_value, eval, render, schema_problems, text};

/// The future of an item that is under way.
type OpenItem<'a> = Pin<Box<dyn Future<Output = Failed<Value>> + 'a>>;

/// Runs a step once, or once for each item.
pub async fn all_items(flow: &Rc<Context<'_>>, path: &PathRef, step: &Step) -> Failed<Value> {
    let Some(each) = &step.each else { return item(flow, path, step, step.name.clone(), None).await };
    let items = match &each.items {
        Value::String(source) => eval(source, &scope(flow, path))?,
        list => render(list, &scope(flow, path))?,
    };
    let (is_map, items): (bool, Vec<(Value, Value)>) = match items {
        Value::Array(items) => (false, items.into_iter().enumerate().map(|(at, item)| (json!(at), item)).collect()),
        Value::Object(items) => (true, items.into_iter().map(|(key, item)| (json!(key), item)).collect()),
        _ => return Err(FlowFailure::permanent("expression_failed", "`each.in` is neither a list nor a map")),
    };
    if items.len() > flow.limits.items {
        let message = format!("`each.in` has {} items, more than {}", items.len(), flow.limits.items);
        return Err(FlowFailure::permanent("too_many_items", message));
    }
    let mut results = vec![Value::Null; items.len()];
    let (mut next, mut done) = (0, 0);
    let mut open: Vec<(usize, OpenItem<'_>)> = Vec::new();
    poll_fn(|context| {
        loop {
            while open.len() < each.concurrency.max(1) as usize && next < items.len() {
                let (key, value) = items[next].clone();
                let label = format!("{}[{}]", step.name, key.as_str().map_or_else(|| key.to_string(), str::to_owned));
                open.push((next, Box::pin(item(flow, path, step, label, Some((key, value))))));
                next += 1;
                // The first call of the item is made before the next item begins.
                let (at, future) = open.last_mut().expect("an item was added");
                if let Poll::Ready(result) = future.as_mut().poll(context) {
                    *flow.begins_in_turn.borrow_mut() += 1;
                    if is_stuck(flow, step) {
                        return Poll::Pending;
                    }
                    results[*at] = match collected(step, result) {
                        Ok(result) => result,
                        Err(failure) => return Poll::Ready(Err(failure)),
                    };
                    open.pop();
                    done += 1;
                }
            }
            if done == items.len() {
                return Poll::Ready(Ok(()));
            }
            let mut over = None;
            for (place, (at, future)) in open.iter_mut().enumerate() {
                if let Poll::Ready(result) = future.as_mut().poll(context) {
                    over = Some((place, *at, result));
                    break;
                }
            }
            let Some((place, at, result)) = over else { return Poll::Pending };
            drop(open.remove(place));
            results[at] = match collected(step, result) {
                Ok(result) => result,
                Err(failure) => return Poll::Ready(Err(failure)),
            };
            done += 1;
        }
    })
    .await?;
    if is_map {
        let keys = items.iter().map(|(key, _)| key.as_str().unwrap_or_default().to_owned());
        return Ok(Value::Object(keys.zip(results).collect::<Map<_, _>>()));
    }
    Ok(Value::Array(results))
}

/// Returns the result of an item, which is its failure if failures are collected.
fn collected(step: &Step, result: Failed<Value>) -> Failed<Value> {
    match result {
        Err(mut failure) if step.each.as_ref().is_some_and(|each| each.collect_errors) && failure.code != "canceled" => {
            failure.step.get_or_insert_with(|| step.name.clone());
            Ok(json!({ "error": error_value(&failure) }))
        }
        result => result,
    }
}

async fn item(
    flow: &Rc<Context<'_>>,
    path: &PathRef,
    step: &Step,
    label: String,
    entry: Option<(Value, Value)>,
) -> Failed<Value> {
    let names = || match (&step.each, &entry) {
        (Some(each), Some((key, value))) => scope(flow, path).with("key", key).with(&each.name, value),
        _ => scope(flow, path),
    };
    let result = attempts(flow, path, step, &label, &names()).await?;
    if entry.is_some() {
        register_undo(flow, step, &label, &names().with("result", &result));
    }
    Ok(result)
}

fn policy(step: &Step) -> Option<RetryPolicy> {
    match step.retry.clone()? {
        Retry::Attempts(attempts) => Some(RetryPolicy { attempts, backoff: None, backoff_max: None, on: Vec::new() }),
        Retry::Policy(policy) => Some(policy),
    }
}

async fn attempts(flow: &Rc<Context<'_>>, path: &PathRef, step: &Step, label: &str, scope: &Scope) -> Failed<Value> {
    let is_engines = step.task.is_some() || step.action.is_some();
    let policy = policy(step).filter(|policy| !is_engines || !policy.on.is_empty());
    let mut number = 1;
    loop {
        let result = match step.timeout {
            Some(timeout) if !is_engines && step.set.is_none() => {
                let sleep = flow.executor.call(format!("{label}.timeout"), CallRequest::Sleep { ms: timeout.as_ms() });
                in_time(attempt(flow, path, step, label, scope), sleep, timeout).await
            }
            _ => attempt(flow, path, step, label, scope).await,
        };
        let (Err(failure), Some(policy)) = (&result, &policy) else { return result };
        let words = &policy.on;
        let is_named = words.is_empty()
            || words
                .iter()
                .any(|word| *word == failure.code || word == "any" || (word == "timeout" && failure.code == "timed_out"));
        if number >= policy.attempts || !failure.retryable || failure.code == "canceled" || !is_named {
            return result;
        }
        let mut ms = policy.backoff.map_or(1_000, Span::as_ms);
        for _ in 1..number {
            ms *= 2;
        }
        if let Some(max) = policy.backoff_max {
            ms = ms.min(max.as_ms());
        }
        flow.executor.call(format!("{label}.retry"), CallRequest::Sleep { ms }).await?;
        number += 1;
    }
}

/// Waits for work, or for a sleep that ends first.
pub async fn in_time<T>(
    work: impl Future<Output = Failed<T>>,
    sleep: impl Future<Output = Failed<Value>>,
    limit: Span,
) -> Failed<T> {
    let (mut work, mut sleep) = (pin!(work), pin!(sleep));
    poll_fn(|context| {
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            return Poll::Ready(result);
        }
        sleep.as_mut().poll(context).map(|slept| {
            slept?;
            let message = format!("no result within {limit}");
            Err(FlowFailure { retryable: true, ..FlowFailure::permanent("timed_out", message) })
        })
    })
    .await
}

async fn attempt(flow: &Rc<Context<'_>>, path: &PathRef, step: &Step, label: &str, scope: &Scope) -> Failed<Value> {
    if let Some(set) = &step.set {
        let mut values = Map::new();
        for (name, template) in set {
            values.insert(name.clone(), render(template, scope)?);
        }
        for (name, value) in values {
            super::set(path, &name, value)?;
        }
        return Ok(Value::Null);
    }
    let mut request = request(step, label, scope)?;
    let mut memo = memo(step, scope)?;
    if step.sleep.is_some() {
        flow.executor.call(label.to_owned(), request).await?;
        return Ok(Value::Null);
    }
    for question in 1.. {
        let mut answer = flow.executor.memo_call(label.to_owned(), request.clone(), memo.take()).await?;
        if step.agent.is_some()
            && let Some(Value::String(text)) = answer.get("text")
        {
            answer = json!(text);
        }
        let Some(schema) = &step.output else { return Ok(answer) };
        let value = match &answer {
            Value::String(text) if step.prompt.is_some() => parsed(text),
            other => Ok(other.clone()),
        };
        let problems = match value {
            Ok(value) => match schema_problems("output", schema, &value) {
                problems if problems.is_empty() => return Ok(value),
                problems => problems,
            },
            Err(problem) => vec![problem],
        };
        if step.prompt.is_none() || step.agent.is_some() || question == 3 {
            let message = format!("the result does not fit the schema: {}", problems.join("; "));
            let failure = FlowFailure::permanent("output_invalid", message);
            return Err(FlowFailure { details: Some(json!({ "problems": problems })), ..failure });
        }
        request = self::request(step, label, scope)?;
        if let CallRequest::Model { prompt, .. } = &mut request {
            let answer = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
            let list: String = problems.iter().map(|problem| format!("- {problem}\n")).collect();
            *prompt += &format!("\n\nYour last answer was:\n{answer}\n\nIts problems:\n{list}\nAnswer again.");
        }
    }
    unreachable!("the last question returns")
}

fn parsed(text: &str) -> Failed2<Value> {
    let mut lines: Vec<&str> = text.trim().lines().collect();
    if lines.len() > 1 && lines[0].starts_with("```") && lines[lines.len() - 1].ends_with("```") {
        lines.remove(0);
        lines.pop();
    }
    let text = lines.join("\n");
    serde_json::from_str(&text).map_err(|error| format!("it is not JSON (line {}, column {})", error.line(), error.column()))
}

type Failed2<T> = Result<T, String>;

fn request(step: &Step, label: &str, scope: &Scope) -> Failed<CallRequest> {
    let with = || render(step.with.as_ref().unwrap_or(&json!({})), scope);
    let retry = policy(step).filter(|policy| policy.on.is_empty()).map(|policy| rule(&policy));
    let timeout_ms = step.timeout.map(Span::as_ms);
    let within_ms = step.within.map(Span::as_ms);
    if let Some(prompt) = &step.prompt {
        let mut prompt = text(prompt, scope)?;
        if let Some(schema) = &step.output {
            prompt += &format!("\n\nAnswer only with JSON that fits this JSON Schema:\n{schema}");
        }
        return Ok(match &step.agent {
            Some(agent) => CallRequest::Child { kind: agent.clone(), input: json!(prompt), is_agent: true },
            None => {
                let system = step.system.as_ref().map(|system| text(system, scope)).transpose()?;
                CallRequest::Model { model: step.model.clone(), system, prompt }
            }
        });
    }
    if let Some(kind) = &step.task {
        return Ok(CallRequest::Task { kind: kind.clone(), input: with()?, queue: step.queue.clone(), retry, timeout_ms });
    }
    if let Some(action) = step.action {
        return Ok(CallRequest::Action { action, arguments: with()?, retry, timeout_ms });
    }
    if let Some(title) = &step.approval {
        return Ok(CallRequest::Approval {
            name: label.to_owned(),
            title: text(title, scope)?,
            show: step.show.as_ref().map(|show| render(show, scope)).transpose()?,
            deciders: step.deciders.iter().map(|decider| text(decider, scope)).collect::<Failed<_>>()?,
            answer: step.answer.clone(),
            within_ms,
        });
    }
    if let Some(signal) = &step.wait {
        return Ok(CallRequest::Signal { name: text(signal, scope)?, within_ms });
    }
    if let Some(kind) = &step.child {
        return Ok(CallRequest::Child { kind: kind.clone(), input: with()?, is_agent: false });
    }
    let sleep = step.sleep.as_ref().expect("the step has one of the kinds");
    if let Ok(span) = sleep.parse::<Span>() {
        return Ok(CallRequest::Sleep { ms: span.as_ms() });
    }
    let ms = match render(&json!(sleep), scope)? {
        Value::String(text) => text.parse::<Span>().ok().map(Span::as_ms),
        Value::Number(seconds) => {
            seconds.as_f64().filter(|seconds| *seconds >= 0.0).map(|seconds| (seconds * 1_000.0).round() as u64)
        }
        _ => None,
    };
    let message = "`sleep` is neither a number of seconds nor a duration";
    ms.map(|ms| CallRequest::Sleep { ms }).ok_or_else(|| FlowFailure::permanent("expression_failed", message))
}

fn memo(step: &Step, scope: &Scope) -> Failed<Option<CallMemo>> {
    let (ttl, key, shared) = match &step.memo {
        None => return Ok(None),
        Some(Memo::For(ttl)) => (ttl, None, MemoScope::Namespace),
        Some(Memo::Rule(rule)) => (&rule.ttl, rule.key.as_ref(), rule.scope),
    };
    let key = key.map(|key| text(key, scope)).transpose()?;
    if key.as_ref().is_some_and(|key| !(1..=1_024).contains(&key.len())) {
        return Err(FlowFailure::permanent("expression_failed", "the key of the memo has 1 to 1024 bytes"));
    }
    Ok(Some(CallMemo { ttl_ms: ttl.as_ms(), key, scope: shared }))
}

fn rule(policy: &RetryPolicy) -> RetryRule {
    RetryRule {
        attempts: policy.attempts,
        backoff_ms: policy.backoff.map_or(1_000, Span::as_ms),
        backoff_max_ms: policy.backoff_max.map(Span::as_ms),
    }
}

/// Registers what undoes a step that has completed.
pub fn register_undo(flow: &Context<'_>, step: &Step, label: &str, scope: &Scope) {
    let Some(undo) = &step.on_failure else { return };
    let request = undo_request(undo, scope);
    flow.undoes.borrow_mut().push((step.name.clone(), format!("{label}.undo"), request));
}

fn undo_request(undo: &Undo, scope: &Scope) -> Failed<CallRequest> {
    let input = render(undo.with.as_ref().unwrap_or(&json!({})), scope)?;
    let retry = match undo.retry.clone() {
        None => RetryRule { attempts: 10, backoff_ms: 1_000, backoff_max_ms: None },
        Some(Retry::Attempts(attempts)) => RetryRule { attempts, backoff_ms: 1_000, backoff_max_ms: None },
        Some(Retry::Policy(policy)) => rule(&policy),
    };
    let (retry, timeout_ms) = (Some(retry), None);
    Ok(match (&undo.task, undo.action) {
        (Some(kind), _) => CallRequest::Task { kind: kind.clone(), input, queue: None, retry, timeout_ms },
        (None, Some(action)) => CallRequest::Action { action, arguments: input, retry, timeout_ms },
        (None, None) => unreachable!("the generator makes complete compensation"),
    })
}
