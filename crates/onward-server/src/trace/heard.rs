//! Subscriber that writes the `tracing` events of the engine to the server's log.
//!
//! Must ignore the events of other crates: they may contain anything, payloads included.

use std::fmt::{Debug, Display, Write as _};
use std::sync::{Arc, Weak};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{Level, To, Trace};

/// Prefix of the names of our own crates.
const OURS: &str = "onward";

/// Holds a weak reference, so that the log can be flushed and closed.
pub(super) struct Heard(Weak<To>);

impl Heard {
    pub fn new(to: &Arc<To>) -> Heard {
        Heard(Arc::downgrade(to))
    }
}

impl Subscriber for Heard {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.is_event() && level(*about.level()).is_some() && about.target().starts_with(OURS)
    }

    fn event(&self, event: &Event<'_>) {
        let (Some(to), Some(level)) = (self.0.upgrade(), level(*event.metadata().level())) else { return };
        let mut said = Said::default();
        event.record(&mut said);
        let fields: Vec<(&str, &dyn Display)> = said.fields.iter().map(|(name, value)| (*name, value as &dyn Display)).collect();
        Trace { to: Some(to) }.say(level, &said.message, &fields);
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
struct Said {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for Said {
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
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::trace::Format;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn warnings_of_the_engine_become_lines_and_others_say_nothing() {
        let written = Written::default();
        let trace = Trace::to(Format::Json, Level::Info, Box::new(written.clone()));
        tracing::subscriber::with_default(Heard::new(trace.to.as_ref().unwrap()), || {
            tracing::warn!(model = "small", attempt = 2, next = None::<u64>, run = %"r", "a call {}", "failed");
            tracing::debug!("too much");
            tracing::warn!(target: "hyper::client", "not ours");
        });
        drop(trace);
        let lines = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let line: serde_json::Value = serde_json::from_str(&lines).unwrap(); // one line
        assert_eq!((&line["level"], &line["message"]), (&"warn".into(), &"a call failed".into()));
        assert_eq!((&line["model"], &line["attempt"], &line["run"]), (&"small".into(), &"2".into(), &"r".into()));
    }
}
