//! Schemas and defaults of kinds, schemas of approvals' answers, and the limit of JSON nesting.

pub(crate) mod answers;
pub(crate) mod check;
pub(crate) mod defaults;
pub(crate) mod depth;
pub(crate) mod flows;
pub(crate) mod kinds;
pub(crate) mod messages;
pub(crate) mod queues;
mod quotas;
