//! What kinds take and give, as their workers said.

use crate::{Name, Namespace, Payload, Timestamp, message};

message! {
    /// The JSON schemas of one kind in one version.
    #[derive(Eq)]
    pub struct KindSchemas {
        1 => namespace: Namespace,
        /// A task's kind; a workflow's otherwise. The two do not know of each other.
        2 => is_task: bool,
        3 => kind: Name,
        /// `None` stands for runs without a version.
        4 => version: Option<Name>,
        5 => input: Option<Payload>,
        6 => output: Option<Payload>,
        /// Set by the store.
        7 => registered_at: Timestamp,
    }
}

impl KindSchemas {
    /// Whether it says anything: an entry that does not removes the one before it.
    pub fn says_something(&self) -> bool {
        self.input.is_some() || self.output.is_some()
    }

    /// What it is about, in the order of lists.
    pub fn place(&self) -> (&Namespace, bool, &Name, Option<&Name>) {
        (&self.namespace, self.is_task, &self.kind, self.version.as_ref())
    }

    /// Whether both say the same about the same, whenever they said it.
    pub fn agrees(&self, other: &KindSchemas) -> bool {
        self.place() == other.place() && self.input == other.input && self.output == other.output
    }
}
