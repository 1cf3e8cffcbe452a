//! Random flows and their reference interpreter, for the tests of the machine and for those of the engine that plays it.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod answers;
pub mod generate;
pub mod random;
pub mod reference;
