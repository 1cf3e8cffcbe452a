//! Limits the cost of a schema check.
//!
//! The validation library has no limit, so every subschema of a compiled schema starts with a keyword that counts. When the
//! budget is exhausted, it unwinds to the start of the check, without output and without state.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Value};

/// The counting keyword. A user's schema that contains it is refused.
pub const METER: &str = "!meter";

/// Budget of a check on the calling thread: about a millisecond.
pub const SMALL: u64 = 20_000;
pub const SMALL_BYTES_MAX: usize = 4 * 1024;

/// Returns the budget of a check of an input with this size: a few seconds for the largest.
pub fn of(bytes: usize) -> u64 {
    1_000_000 + 40 * bytes as u64
}

/// Stack size of a check, in bytes. Threads have two MiB, and checks start near the bottom of the stack.
const STACK_BYTES_MAX: usize = 1024 * 1024;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static BOTTOM: Cell<usize> = const { Cell::new(0) };
}

/// Panic payload of an exhausted budget.
struct BudgetExhausted;

/// Runs `work`, which evaluates metered schemas; `None` if it exceeds `budget`.
pub fn within<T>(budget: u64, work: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(budget);
    BOTTOM.set(here());
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(thrown) if thrown.is::<BudgetExhausted>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Returns the approximate position on the stack.
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
            resume_unwind(Box::new(BudgetExhausted));
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

/// Creates the meter of one subschema; the keyword's value is its weight.
pub fn meter<'a>(
    _: &'a Map<String, Value>,
    weight: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    Ok(Box::new(Meter { weight: weight.as_u64().unwrap_or(1) }))
}
