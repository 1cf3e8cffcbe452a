//! Checks of values against JSON schemas of others.
//!
//! Compiles a schema once and compares values with it. Determines neither which schema is in force nor what a violation means.
//!
//! Invariant KI3 (S35): no schema and no value can make a check run forever, exhaust the stack, or load anything.

#[cfg(feature = "schema")]
mod budget;
#[cfg(feature = "schema")]
mod compiled;
#[cfg(feature = "schema")]
mod limits;

use std::sync::Arc;

use onward_core::Payload;

/// One violation of a schema by a value.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Position as a JSON pointer; empty for the whole value.
    pub path: String,
    /// The keyword of the schema that is violated.
    pub keyword: String,
    /// The problem, without the value.
    pub message: String,
}

impl Violation {
    /// Returns a violation by the whole value.
    pub(crate) fn of_all(keyword: &str, message: &str) -> Violation {
        Violation { path: String::new(), keyword: keyword.to_owned(), message: message.to_owned() }
    }
}

#[cfg(feature = "schema")]
pub(crate) use checking::check_usable;
#[cfg(feature = "schema")]
pub use checking::{ValueSchema, schema_problem, violations_now};

#[cfg(not(feature = "schema"))]
pub(crate) use unchecked::check_usable;
#[cfg(not(feature = "schema"))]
pub use unchecked::{ValueSchema, schema_problem, violations_now};

/// Without the feature, schemas are only stored and passed on.
#[cfg(not(feature = "schema"))]
mod unchecked {
    use super::*;

    /// A schema that is not compiled.
    #[derive(Debug)]
    pub struct ValueSchema;

    impl ValueSchema {
        pub fn new(_: Payload) -> Arc<ValueSchema> {
            Arc::new(ValueSchema)
        }

        pub(crate) async fn violations(self: &Arc<ValueSchema>, _: &Payload) -> Result<Vec<Violation>, String> {
            Ok(Vec::new())
        }

        pub fn violations_now(&self, _: &Payload) -> Result<Vec<Violation>, String> {
            Ok(Vec::new())
        }
    }

    pub(crate) async fn check_usable(_: &Payload) -> Result<(), String> {
        Ok(())
    }

    pub fn schema_problem(_: &Payload) -> Option<String> {
        None
    }

    pub fn violations_now(_: &Payload, _: &Payload) -> Result<Vec<Violation>, String> {
        Ok(Vec::new())
    }
}

/// Compiles and checks; long work runs on the blocking pool.
#[cfg(feature = "schema")]
mod checking {
    use std::sync::OnceLock;

    use tokio::sync::Semaphore;

    use super::compiled::{Checked, Compiled};
    use super::*;

    /// Bound on concurrent long checks, so that they do not take all cores.
    static LONG: Semaphore = Semaphore::const_new(2);

    async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let _permit = LONG.acquire().await; // never closed
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    /// Fails with the reason if a schema cannot be used.
    pub(crate) async fn check_usable(schema: &Payload) -> Result<(), String> {
        let schema = schema.clone();
        apart(move || Compiled::new(&schema).map(drop)).await
    }

    /// Returns why a schema cannot be used, if that is so. Compiles it on the calling thread.
    pub fn schema_problem(schema: &Payload) -> Option<String> {
        Compiled::new(schema).err()
    }

    /// Returns the violations of `schema` by `value`, on the calling thread; fails with the reason if the schema cannot be used.
    pub fn violations_now(schema: &Payload, value: &Payload) -> Result<Vec<Violation>, String> {
        Ok(listed(Compiled::new(schema)?.check(value, budget::of(value.data().len()))))
    }

    fn listed(checked: Checked) -> Vec<Violation> {
        match checked {
            Checked::Done(violations) => violations,
            Checked::TooLong => vec![Violation::of_all("", "the check against the schema takes too long")],
        }
    }

    /// A schema, compiled by the first check.
    pub struct ValueSchema {
        schema: Payload,
        compiled: OnceLock<Result<Compiled, String>>,
    }

    impl ValueSchema {
        pub fn new(schema: Payload) -> Arc<ValueSchema> {
            Arc::new(ValueSchema { schema, compiled: OnceLock::new() })
        }

        /// Returns the violations by a value; fails with the reason if the schema cannot be used. A value or schema that is not
        /// JSON may be encrypted, so it is not checked.
        pub(crate) async fn violations(self: &Arc<ValueSchema>, value: &Payload) -> Result<Vec<Violation>, String> {
            if !value.is_json() || !self.schema.is_json() {
                return Ok(Vec::new());
            }
            if let Some(Ok(compiled)) = self.compiled.get()
                && value.data().len() <= budget::SMALL_BYTES_MAX
                && let Checked::Done(violations) = compiled.check(value, budget::SMALL)
            {
                return Ok(violations);
            }
            let (schema, value) = (self.clone(), value.clone());
            apart(move || schema.violations_now(&value)).await
        }

        /// Returns the violations by a value, on the calling thread; fails with the reason if the schema cannot be used.
        pub fn violations_now(&self, value: &Payload) -> Result<Vec<Violation>, String> {
            let compiled = self.compiled.get_or_init(|| Compiled::new(&self.schema)).as_ref().map_err(String::clone)?;
            Ok(listed(compiled.check(value, budget::of(value.data().len()))))
        }
    }

    impl std::fmt::Debug for ValueSchema {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("ValueSchema").field("schema", &self.schema).finish_non_exhaustive()
        }
    }
}
