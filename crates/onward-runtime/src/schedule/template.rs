//! Inputs that are templates, in the language of flows.
//!
//! The names are `slot` (`at`, `local`, `date`, `time`, `epoch_ms`), `schedule`, `run` and `cause`. The same slot always renders to
//! the same input.

use onward_core::schedule::{ScheduleRefusal, SlotContext, SpecError, local_time};
use onward_core::{Payload, RunId};

use super::start::unreadable;
use crate::RuntimeError;

const HINT: &str = "names are slot.at, slot.local, slot.date, slot.time, slot.epoch_ms, schedule, run and cause";

fn refused(message: impl Into<String>) -> RuntimeError {
    ScheduleRefusal::from(SpecError::of("target.input", message, HINT)).into()
}

#[cfg(feature = "flows")]
mod rendering {
    use onward_flow::expression::{Scope, Template};
    use serde_json::{Value, json};

    use super::*;

    /// Renders the input of the run of a slot.
    pub fn render(input: &Payload, run: &RunId, slot: &SlotContext) -> Result<Payload, RuntimeError> {
        if let Some(why) = unreadable(input) {
            return Err(refused(why));
        }
        let value: Value = input.read().map_err(|error| refused(error.to_string()))?;
        let template = Template::compile(&value).map_err(|error| refused(error.to_string()))?;
        let rendered = template.render(&scope(run, slot)).map_err(|error| refused(error.to_string()))?;
        Ok(Payload::from_json_text(rendered.to_string()))
    }

    fn scope(run: &RunId, SlotContext { schedule, firing, time_zone }: &SlotContext) -> Scope {
        let local = local_time(firing.slot, time_zone.as_deref());
        let slot = json!({
            "at": firing.slot.to_string(),
            "local": local.text,
            "date": local.date,
            "time": local.time,
            "epoch_ms": firing.slot.0,
        });
        Scope::new()
            .with("slot", &slot)
            .with("schedule", &json!(schedule.as_str()))
            .with("run", &json!(run.as_str()))
            .with("cause", &json!(firing.cause.as_str()))
    }
}

#[cfg(not(feature = "flows"))]
mod rendering {
    use super::*;

    const MISSING: &str = "this program renders no templates: it is built without the feature `flows`";

    pub fn render(input: &Payload, _: &RunId, _: &SlotContext) -> Result<Payload, RuntimeError> {
        Err(refused(unreadable(input).unwrap_or(MISSING)))
    }
}

pub(super) use rendering::render;
