//! Schemas of kinds.

use onward_core::{KindSchemas, Namespace, Timestamp};

use super::state::State;

impl State {
    pub fn register_kinds(&mut self, kinds: Vec<KindSchemas>, now: Timestamp) {
        for kind in kinds {
            self.kinds.retain(|other| other.key() != kind.key());
            if kind.says_something() {
                self.kinds.push(KindSchemas { registered_at: now, ..kind });
            }
        }
        self.kinds.sort_by(|a, b| a.key().cmp(&b.key()));
    }

    pub fn list_kinds(&self, namespace: &Namespace) -> Vec<KindSchemas> {
        self.kinds.iter().filter(|kind| kind.namespace == *namespace).cloned().collect()
    }
}
