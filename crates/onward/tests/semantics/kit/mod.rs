//! Tests of the test kit: a script must behave like a real run.

mod crashes;
mod negative;
mod replaying;
mod schedules;
mod spelling;
mod steps;
mod timing;
