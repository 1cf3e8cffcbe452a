//! Conversations and streams of agents.

pub mod conversation;
pub mod stream;
