//! Log messages of the engine (`tracing`), for tests.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Messages at level `WARN` or above, as fields with their texts.
#[derive(Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<BTreeMap<&'static str, String>>>>);

impl Warnings {
    /// Returns the collector of this process: engines poll on their own threads.
    pub fn collect() -> Warnings {
        static COLLECTOR: OnceLock<Warnings> = OnceLock::new();
        let collector = COLLECTOR.get_or_init(|| {
            let warnings = Warnings::default();
            tracing::subscriber::set_global_default(warnings.clone()).unwrap();
            warnings
        });
        collector.clone()
    }

    pub fn about(&self, run: &str) -> Vec<BTreeMap<&'static str, String>> {
        let messages = self.0.lock().unwrap();
        messages.iter().filter(|fields| fields.get("run").is_some_and(|named| named == run)).cloned().collect()
    }
}

struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
