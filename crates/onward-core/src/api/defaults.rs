//! Defaults of kinds.

use crate::{KindDefaults, Name, Namespace, Timestamp, message, numbered};

message! {
    /// Replaces the live defaults of a kind; without any option they are removed.
    pub struct PutDefaultsRequest {
        1 => namespace: Namespace,
        /// Of tasks and of workflows; options of tasks do not concern runs, and `deadline_ms` does not concern tasks.
        2 => kind: Name,
        3 => defaults: KindDefaults,
    }

    /// A query for defaults.
    #[derive(Default)]
    pub struct DefaultsQuery {
        1 => namespace: Namespace,
        /// Only those of this kind.
        2 => kind: Option<Name>,
    }

    /// Defaults by kind, each kind's in order of precedence.
    pub struct DefaultsReply { 1 => defaults: Vec<SourcedDefaults> }

    /// Defaults of a kind from one source.
    #[derive(Eq)]
    pub struct SourcedDefaults {
        1 => kind: Name,
        2 => source: DefaultsSource,
        /// The version of a workflow whose worker registered them.
        #[serde(skip_serializing_if = "Option::is_none")]
        3 => version: Option<Name>,
        4 => defaults: KindDefaults,
        /// When they were stored; absent for those of the settings.
        #[serde(skip_serializing_if = "Option::is_none")]
        5 => stored_at: Option<Timestamp>,
    }
}

numbered! {
    /// Where defaults were set, in order of precedence.
    pub enum DefaultsSource {
        /// On the server, by a request.
        0 => Live / "live",
        /// In the settings file or in code that opens the store.
        1 => Settings / "settings",
        /// By a worker.
        2 => Registered / "registered",
    }
}
