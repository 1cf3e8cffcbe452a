//! Promises that callers find by a key.

use onward_core::RunKey;
use onward_core::api::FindPromiseRequest;
use onward_core::memo::{MEMO_KEY_BYTES_MAX, MemoCell};

use crate::{CallRef, Runtime, RuntimeError};

impl Runtime {
    /// Returns the promise that has a key, or had it last (PK2).
    pub async fn find_promise(&self, request: FindPromiseRequest) -> Result<CallRef, RuntimeError> {
        let FindPromiseRequest { namespace, key } = request;
        if key.is_empty() || key.len() > MEMO_KEY_BYTES_MAX {
            return Err(RuntimeError::MemoKeyInvalid { bytes: key.len() });
        }
        let cell = RunKey::new(namespace, MemoCell::of_promise(key.clone()).id());
        let head = self.store().read_run(cell, None).await?;
        let promise = head.and_then(|head| head.cell?.promise().cloned());
        let Some(promise) = promise else { return Err(RuntimeError::PromiseKeyNotFound { key }) };
        // The id may belong to another run by now.
        let run = self.store().read_run(promise.run.clone(), Some(promise.generation)).await?;
        if run.is_none_or(|head| head.incarnation != promise.incarnation) {
            return Err(RuntimeError::PromiseKeyNotFound { key });
        }
        Ok(CallRef { run: promise.run, generation: promise.generation, call_id: promise.call_id })
    }
}
