//! The HTTP API as a client sees it: a real listener, a real directory, a worker beside it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod approving;
mod attach;
mod attachments;
mod bodies;
mod bounds;
mod ceilings;
mod children;
mod client;
mod console;
mod document;
mod drive;
mod entries;
mod external;
mod finding;
mod guard;
mod keys;
mod kinds;
mod limits;
mod live;
mod observing;
mod operations;
mod questions;
mod reflection;
mod refusals;
mod reopening;
mod rights;
mod runs;
mod session;
mod site;
mod streams;
mod tasks;
mod tls;
mod webhooks;
