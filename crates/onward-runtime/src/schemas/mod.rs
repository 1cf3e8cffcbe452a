//! Schemas of kinds, and the limit of JSON nesting.

pub(crate) mod depth;
pub(crate) mod kinds;
