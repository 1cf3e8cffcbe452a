//! State: named values of a run that callers can read while it is open.

use onward_core::Name;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Ctx, name_or_misuse, payload_or_misuse, small};
use crate::Result;

impl Ctx {
    pub fn state(&self) -> RunState {
        RunState { ctx: self.clone() }
    }
}

/// See [`Ctx::state`].
pub struct RunState {
    ctx: Ctx,
}

impl RunState {
    /// Sets a value; callers can read it once this activation is committed.
    ///
    /// # Errors
    /// Fails if the value is too large; the previous value stays.
    pub fn set(&self, key: &str, value: &(impl Serialize + ?Sized)) -> Result<()> {
        let cell = &self.ctx.cell;
        let (key, value) = (name_or_misuse(cell, "state", key), payload_or_misuse(cell, "state", value));
        let value = small(cell.shared.payload_bytes_max, format_args!("the state `{key}`"), value)?;
        cell.call("state().set").engine.set_state(key, value);
        Ok(())
    }

    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let key = name_or_misuse(&self.ctx.cell, "state", key);
        let value = self.ctx.cell.call("state").engine.state(&key).cloned();
        value.map(|payload| Ok(payload.read()?)).transpose()
    }

    pub fn clear(&self, key: &str) {
        let key = name_or_misuse(&self.ctx.cell, "state", key);
        self.ctx.cell.call("state().clear").engine.clear_state(&key);
    }

    pub fn keys(&self) -> Vec<Name> {
        self.ctx.cell.call("state").engine.state_keys()
    }
}
