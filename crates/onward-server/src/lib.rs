//! HTTP and gRPC API of a runtime: every verb under `/v1`, attach as server-sent events, health, metrics, OpenAPI.
//!
//! This crate translates requests and makes no decisions about runs: the runtime decides what is admitted, [`document`] and
//! [`problem`] define the response bodies. No code here holds a lease or runs workflow code.
//!
//! Reading order: [`ROUTES`] (the table of routes), `router` (middleware around every handler), `handlers`, `attach`, `ag_ui`,
//! [`problem`] (error responses), `serve` (connections and their limits).
//!
//! Example: serve the engine of your own program:
//!
//! ```no_run
//! # async fn example(onward: onward::Onward) -> std::io::Result<()> {
//! use onward_server::{Options, Server, router, serve};
//!
//! let server = Server::new(onward.runtime().expect("the engine runs in this process").clone(), Options::default());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7400").await?;
//! serve(&server, listener, router(server.clone()), std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod ag_ui;
pub mod auth;
mod console;
mod grpc;
mod handlers;
mod hex;
mod http;
mod new_id;
mod serve;
mod server;
pub mod trace;
mod verbs;
pub mod webhooks;
mod workers;

pub use auth::bounds::Bounds;
pub use auth::keys::Keys;
pub use auth::{AuthRefusal, Authenticate, Caller, Scope};
pub use grpc::{METHODS, Method, grpc};
pub use http::cors::Cors;
pub use http::limits::{JSON_DEPTH_MAX, Limits, WAIT_MAX};
pub use http::middleware::Hosts;
pub use http::problem::Problem;
pub use http::router::{router, router_with};
pub use http::routes::{ROUTES, Route};
pub use onward_runtime::Ceilings;
pub use serve::probe::{DatabaseState, Figure, Probe, Sample};
pub use serve::tls::Tls;
pub use serve::{ServeFuture, serve};
pub use server::{Options, Server};
pub use webhooks::Webhooks;

pub use auth::keys;
pub use http::documents as document;
pub use http::escape;
pub use http::problem;
pub use http::routes as route;
pub use serve::metrics;
pub use serve::tls;
