//! How much a check may do before it is given up.
//!
//! The library that checks knows no limit, so before every subschema of a compiled schema there is a keyword that counts. When all is
//! used up it unwinds to whoever began the check; nothing is printed and nothing is kept.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Value};

/// The keyword that counts. No schema of a user has it: it is refused.
pub const METER: &str = "!meter";

/// What is checked at once, on the thread that asks: a millisecond or so.
pub const SMALL: u64 = 20_000;
pub const SMALL_BYTES_MAX: usize = 4 * 1024;

/// What a check may cost whose input has so many bytes: seconds at the very most, for the largest.
pub fn of(bytes: usize) -> u64 {
    1_000_000 + 40 * bytes as u64
}

/// How deep a check may go, in bytes of stack. Threads have two MiB, and we are near their beginning.
const STACK_BYTES_MAX: usize = 1024 * 1024;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static BOTTOM: Cell<usize> = const { Cell::new(0) };
}

/// Thrown when the budget is used up.
struct UsedUp;

/// Runs `work`, which evaluates metered schemas; `None` when it would take more than `budget`.
pub fn within<T>(budget: u64, work: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(budget);
    BOTTOM.set(here());
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(thrown) if thrown.is::<UsedUp>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Where the stack is now, more or less.
#[inline(never)]
fn here() -> usize {
    let mark = 0_u8;
    std::hint::black_box(&raw const mark as usize)
}

struct Meter {
    weight: u64,
}

impl Meter {
    fn count(&self, instance: &Value) {
        let size = match instance {
            Value::String(text) => text.len() / 32,
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            _ => 0,
        };
        let cost = self.weight.saturating_mul(1 + size as u64 / 4);
        let left = LEFT.get();
        if left < cost || here().abs_diff(BOTTOM.get()) > STACK_BYTES_MAX {
            resume_unwind(Box::new(UsedUp));
        }
        LEFT.set(left - cost);
    }
}

impl<'i> Keyword<'i> for Meter {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        self.count(instance);
        Ok(())
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.count(instance);
        true
    }
}

/// Makes the meter of one subschema; its value is the weight.
pub fn meter<'a>(
    _: &'a Map<String, Value>,
    weight: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    Ok(Box::new(Meter { weight: weight.as_u64().unwrap_or(1) }))
}
