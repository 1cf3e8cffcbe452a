//! The runtime over the reference store, driven by hand: no sleeping, time is passed in.

mod faulty;
mod handover;
mod kit;
mod questions;
mod sessions;
mod updates;
mod verbs;
mod watching;
