//! Routes, requests, responses and documents of the HTTP API.

pub(crate) mod cors;
pub(crate) mod declare;
pub(crate) mod diagnosis;
pub mod documents;
pub mod escape;
pub(crate) mod limits;
pub(crate) mod log_page;
pub(crate) mod middleware;
pub mod problem;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod router;
pub mod routes;
pub(crate) mod sse;
#[cfg(test)]
pub(crate) mod tests;
