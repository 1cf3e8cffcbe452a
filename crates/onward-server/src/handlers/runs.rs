//! Runs: `/v1/runs`.

pub(crate) mod act;
mod events;
mod list;
pub(crate) mod live;
mod observe;
pub(crate) mod start;
pub(crate) mod stream;

pub(crate) use act::{act, delete, fork, reset, resume, retry};
pub(crate) use events::{events, last_event_id, no_limit, wants_stream};
pub(crate) use list::{blocked_on, children, deleted, filter, list, run_of, show, spend, status, versions};
pub(crate) use live::{active, feed, live};
pub(crate) use observe::{activity, at, counts, timeline};
pub(crate) use start::{SignalBody, query, result, signal, start, update};
pub(crate) use stream::stream;
