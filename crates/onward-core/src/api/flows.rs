//! Definitions of flows: documents that are versions of a kind.

use crate::{Name, Namespace, Timestamp, message};

message! {
    /// A document to store as the current version of its flow.
    pub struct PutFlowRequest {
        1 => namespace: Namespace,
        2 => flow: Name,
        /// The document, YAML or JSON.
        3 => document: String,
        /// The version that must be the current one; an empty text if the flow must not exist yet.
        4 => expected: Option<String>,
        /// Only checks the document.
        5 => dry_run: bool,
    }

    pub struct PutFlowReply {
        1 => flow: FlowVersion,
        /// The version is new, or was not the current one.
        2 => is_changed: bool,
        3 => warnings: Vec<FlowWarning>,
    }

    /// A problem of a document that does not prevent its use.
    #[derive(Eq)]
    pub struct FlowWarning { 1 => line: u32, 2 => column: u32, 3 => code: String, 4 => message: String }

    /// A query for flows.
    #[derive(Default)]
    pub struct FlowQuery {
        1 => namespace: Namespace,
        /// All versions of this flow, with documents; otherwise the current versions of all flows, without documents.
        2 => flow: Option<Name>,
    }

    /// Flows by name, or the versions of one: the current one first, then the newest.
    pub struct FlowsReply { 1 => flows: Vec<FlowVersion> }

    /// One version of a flow.
    #[derive(Eq)]
    pub struct FlowVersion {
        1 => flow: Name,
        /// Derived from the content of the document.
        2 => version: Name,
        3 => document: Option<String>,
        4 => applied_at: Timestamp,
        /// New runs are pinned to the current version.
        5 => is_current: bool,
        /// The number of open runs that are pinned to it.
        6 => open_runs: u64,
        /// It came with an import and was never made current.
        7 => is_imported: bool,
    }

    pub struct DeleteFlowRequest {
        1 => namespace: Namespace,
        2 => flow: Name,
        /// Also if runs are open, which then wait for a worker with their version.
        3 => force: bool,
    }
}

impl FlowQuery {
    /// Returns the query for all flows of a namespace.
    pub fn all(namespace: Namespace) -> FlowQuery {
        FlowQuery { namespace, flow: None }
    }
}
