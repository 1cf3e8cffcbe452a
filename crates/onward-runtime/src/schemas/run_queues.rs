//! The place of a run in a queue: what its start or the defaults of its kind set.
//!
//! Evaluated where a run starts, so the log has the place and a replay never looks at it (KD1, KD2). A key of the defaults is a
//! template in the language of flows, over `input`, `kind` and `run`. A key that cannot be computed refuses the start, because a
//! run without its key would pass the limits of the key.

use onward_core::event::RunStarted;
use onward_core::run::RunQueue;
use onward_core::run::run_queue::queue_fault;
use onward_core::{KindDefaults, Name, RunKey};

use crate::RuntimeError;

/// What a start says about its queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WantedQueue {
    pub queue: Option<Name>,
    pub key: Option<Name>,
    pub priority: Option<i32>,
}

fn invalid(why: impl Into<String>) -> RuntimeError {
    RuntimeError::RunQueueInvalid { why: why.into() }
}

/// Fails if a caller may not name this queue.
pub(crate) fn check_queue_name(queue: Option<&Name>) -> Result<(), RuntimeError> {
    queue.and_then(queue_fault).map_or(Ok(()), |why| Err(invalid(why)))
}

/// Returns the place of a run, with what the start did not set from the defaults of its kind.
pub(crate) fn place(
    wanted: WantedQueue,
    key: &RunKey,
    started: &RunStarted,
    defaults: &KindDefaults,
) -> Result<Option<Box<RunQueue>>, RuntimeError> {
    let WantedQueue { queue, key: own, priority } = wanted;
    let Some(name) = queue.or_else(|| defaults.queue.clone()) else {
        return match own.is_some() || priority.is_some() {
            true => Err(invalid("a key or priority without a queue")),
            false => Ok(None),
        };
    };
    let own = match (own, &defaults.key) {
        (None, Some(template)) => keys::render(template, key, started)?,
        (own, _) => own,
    };
    let place = RunQueue { key: own, priority: priority.or(defaults.priority).unwrap_or_default(), ..RunQueue::new(name) };
    match place.fault() {
        Some(why) => Err(invalid(why)),
        None => Ok(Some(Box::new(place))),
    }
}

/// Returns the reason if a text is no template of a key.
pub(crate) fn key_fault(template: &str) -> Option<String> {
    keys::fault(template)
}

#[cfg(feature = "flows")]
mod keys {
    use onward_flow::expression::{ExpressionError, NamePath, Scope, Template};
    use serde_json::{Value, json};

    use super::*;

    const NAMES: [&str; 3] = ["input", "kind", "run"];

    fn root(path: &NamePath) -> &str {
        path.first().map_or("", String::as_str)
    }

    fn of(error: &ExpressionError) -> String {
        let position = error.offset.map(|offset| format!(", position {offset}")).unwrap_or_default();
        format!("the expression of the key fails: {error}{position}")
    }

    pub fn fault(template: &str) -> Option<String> {
        let compiled = match Template::of_text(template) {
            Ok(compiled) => compiled,
            Err(error) => return Some(of(&error)),
        };
        let unknown = compiled.names().iter().map(|path| root(path)).find(|name| !NAMES.contains(name));
        unknown.map(|name| format!("the expression of the key uses `{name}`; its names are {}", NAMES.join(", ")))
    }

    /// Renders the key; an empty text and `null` are no key.
    pub fn render(template: &str, key: &RunKey, started: &RunStarted) -> Result<Option<Name>, RuntimeError> {
        let compiled = Template::of_text(template).map_err(|error| invalid(of(&error)))?;
        let needs_input = compiled.names().iter().any(|path| root(path) == "input");
        let input: Value = match started.input.is_json() {
            _ if !needs_input => Value::Null,
            true => started.input.read().map_err(|error| invalid(format!("the key needs the input: {error}")))?,
            false => return Err(invalid("the key needs the input, which the server cannot read: it is encrypted or binary")),
        };
        let (kind, run) = (json!(started.kind.as_str()), json!(key.id.as_str()));
        let scope = Scope::new().with("input", &input).with("kind", &kind).with("run", &run);
        let text = match compiled.render(&scope).map_err(|error| invalid(of(&error)))? {
            Value::Null => return Ok(None),
            Value::String(text) => text,
            value @ (Value::Number(_) | Value::Bool(_)) => value.to_string(),
            _ => return Err(invalid("the expression of the key gives a list or map; a key is a text, number or boolean")),
        };
        match text.is_empty() {
            true => Ok(None),
            false => {
                Name::new(text).map(Some).map_err(|error| invalid(format!("the expression of the key gives no name: {error}")))
            }
        }
    }
}

#[cfg(not(feature = "flows"))]
mod keys {
    use super::*;

    const MISSING: &str = "this program evaluates no expressions: it is built without the feature `flows`";

    pub fn fault(_: &str) -> Option<String> {
        Some(MISSING.to_owned())
    }

    pub fn render(_: &str, _: &RunKey, _: &RunStarted) -> Result<Option<Name>, RuntimeError> {
        Err(invalid(MISSING))
    }
}
