//! The runtime over the reference store, driven by hand: no sleeping, time is passed in.

mod faulty;
mod kit;
mod questions;
mod updates;
mod verbs;
