//! Runs: one file per verb.

mod act;
mod delete;
mod events;
mod list;
mod query;
mod reopen;
mod result;
mod show;
mod signal;
mod start;
mod stream;
mod update;

pub(crate) use act::{act, cancel, pause, resume, terminate};
pub(crate) use delete::delete;
pub(crate) use events::{events, last_event_id, wants_stream};
pub(crate) use list::{children, filter, list, status, versions};
pub(crate) use query::query;
pub(crate) use reopen::{fork, reset, retry};
pub(crate) use result::result;
pub(crate) use show::{blocked_on, show};
pub(crate) use signal::{SignalBody, signal};
pub(crate) use start::start;
pub(crate) use stream::stream;
pub(crate) use update::update;
