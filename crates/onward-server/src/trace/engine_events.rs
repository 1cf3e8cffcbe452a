//! Subscriber that writes the `tracing` events of the engine to the server's log.
//!
//! Must ignore the events of other crates: they may contain anything, payloads included.

use std::fmt::{Debug, Display, Write as _};
use std::sync::{Arc, Weak};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{Level, Trace, TraceSink};

/// Prefix of the names of our own crates.
const OURS: &str = "onward";

/// Holds a weak reference, so that the log can be flushed and closed.
pub(super) struct EngineEvents(Weak<TraceSink>);

impl EngineEvents {
    pub fn new(to: &Arc<TraceSink>) -> EngineEvents {
        EngineEvents(Arc::downgrade(to))
    }
}

impl Subscriber for EngineEvents {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.is_event() && level(*about.level()).is_some() && about.target().starts_with(OURS)
    }

    fn event(&self, event: &Event<'_>) {
        let (Some(to), Some(level)) = (self.0.upgrade(), level(*event.metadata().level())) else { return };
        let mut recorded = EventFields::default();
        event.record(&mut recorded);
        let fields: Vec<(&str, &dyn Display)> =
            recorded.fields.iter().map(|(name, value)| (*name, value as &dyn Display)).collect();
        Trace { to: Some(to) }.log(level, &recorded.message, &fields);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1) // no span is enabled
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn level(level: tracing::Level) -> Option<Level> {
    Some(match level {
        tracing::Level::ERROR => Level::Error,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::INFO => Level::Info,
        tracing::Level::DEBUG => Level::Debug,
        _ => return None,
    })
}

#[derive(Default)]
struct EventFields {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}"); // writing to a String cannot fail
        } else {
            self.fields.push((field.name(), format!("{value:?}")));
        }
    }
}

#[cfg(test)]
mod tests;
