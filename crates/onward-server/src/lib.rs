//! The HTTP door over a runtime: every verb under `/v1`, attach as server-sent events, health, metrics, OpenAPI.
//!
//! A door translates and never decides: what may be done is decided below, what is said is decided in [`document`] and [`problem`].
//! Nothing here holds a lease or runs workflow code.
//!
//! Reading order: [`ROUTES`] (what there is), `router` (what happens around every handler), `runs` (the handlers), `attach`, `ag_ui`,
//! [`problem`] (how errors are told), `serve` (connections and their limits).
//!
//! An engine that lives in your own program gets this door in a few lines:
//!
//! ```no_run
//! # async fn example(onward: onward::Onward) -> std::io::Result<()> {
//! use onward_server::{Options, Server, router, serve};
//!
//! let server = Server::new(onward.runtime().expect("it is in this process").clone(), Options::default());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7400").await?;
//! serve(&server, listener, router(server.clone()), std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod ag_ui;
mod agents;
mod answer;
mod approvals;
mod attach;
mod attachments;
mod attributes;
pub mod auth;
mod bounds;
mod bulk;
mod ceiling;
mod diagnosis;
pub mod document;
mod drive;
mod entries;
pub mod escape;
mod external;
mod grpc;
mod guard;
pub mod hooks;
pub mod keys;
mod kinds;
mod limits;
mod log_page;
pub mod metrics;
mod new_id;
mod openapi;
mod operations;
mod probe;
pub mod problem;
mod promises;
mod request;
mod roster;
pub mod route;
mod router;
mod runs;
mod serve;
mod server;
mod servers;
mod spend;
mod sse;
mod tasks;
pub mod tls;
pub mod trace;
mod transfer;
mod whole_file;
mod workers;

pub use auth::{Authenticate, Caller, Refusal, Scope};
pub use bounds::Bounds;
pub use ceiling::Ceilings;
pub use grpc::{METHODS, Method, grpc};
pub use guard::Hosts;
pub use hooks::Hooks;
pub use keys::Keys;
pub use limits::{JSON_DEPTH_MAX, Limits, WAIT_MAX};
pub use openapi::document as openapi_document;
pub use probe::{DatabaseState, Figure, Probe, Sample};
pub use problem::Problem;
pub use route::{ROUTES, Route};
pub use router::{router, router_with};
pub use serve::serve;
pub use server::{Options, Server};
pub use tls::Tls;
