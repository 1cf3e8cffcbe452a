//! Handlers of the HTTP API, one file for each resource.

pub(crate) mod approvals;
pub(crate) mod attach;
pub(crate) mod attachments;
pub(crate) mod attributes;
pub(crate) mod bulk;
pub(crate) mod claims;
pub(crate) mod entries;
pub(crate) mod external;
pub(crate) mod flows;
pub(crate) mod kinds;
pub(crate) mod memos;
pub(crate) mod operations;
pub(crate) mod queues;
pub(crate) mod quotas;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod servers;
pub(crate) mod tasks;
pub(crate) mod transfer;

/// Items that handlers need to read a request and to respond.
pub(crate) mod prelude {
    pub use axum::http::StatusCode;
    pub use axum::response::{IntoResponse, Response};
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::value::RawValue;

    pub(crate) use crate::http::declare::{bodies, documents, words};
    pub use crate::http::problem::{Problem, RequestError};
    pub(crate) use crate::http::request::{Request, payload};
    pub(crate) use crate::http::response::json;
}
