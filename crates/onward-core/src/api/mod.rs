//! The API: a request and a reply for each verb, declared once for runtime, server, client and command line.
//!
//! [`verbs`] is the table. [`payloads`] lists the parts of messages that hold data of users.

mod payloads;
mod target;
mod verbs;

mod conversations;
mod defaults;
mod flows;
mod lists;
mod memos;
mod observe;
mod queues;
mod quotas;
mod runs;
mod schedules;
mod tasks;

pub use conversations::*;
pub use defaults::*;
pub use flows::*;
pub use lists::*;
pub use memos::*;
pub use observe::*;
pub use payloads::PayloadMut;
pub use queues::*;
pub use quotas::*;
pub use runs::*;
pub use schedules::*;
pub use target::{HasTarget, Target, split_call_ref};
pub use tasks::*;
pub use verbs::{Call, Reply, Verb, verb};

pub use crate::RunHead;
pub use crate::ledger::SpendQuery;
pub use crate::moment::Moment;
pub use crate::timeline::Timeline;
