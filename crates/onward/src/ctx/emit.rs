//! Values for readers of a run; not recorded.

use onward_core::live::Audience;
use onward_core::{Failure, Payload};
use onward_runtime::Emitted;
use serde::Serialize;

use super::{Ctx, payload_or_failure, small};
use crate::Result;

impl Ctx {
    /// Sends a value to the current readers of the run (`RunHandle::emitted`, `RunHandle::watch`). It is not recorded or repeated
    /// on replay.
    ///
    /// # Errors
    /// Fails if the value is too large or cannot be written as JSON, on replay, too.
    pub fn emit(&self, name: &str, value: &impl Serialize) -> Result<()> {
        self.emission(name, value).send()
    }

    /// Returns a value to be sent like [`Ctx::emit`], with an audience and meta data.
    ///
    /// ```
    /// # async fn example(ctx: &onward::Ctx) -> onward::Result<()> {
    /// ctx.emission("retrieved", &vec!["doc-1"]).internal().meta(&serde_json::json!({"score": 0.4})).send()?;
    /// # Ok(()) }
    /// ```
    pub fn emission(&self, name: &str, value: &impl Serialize) -> Emission {
        let value = self.emitted_payload(value);
        Emission { ctx: self.clone(), emitted: value.map(|value| Emitted::new(name, value)) }
    }

    fn emitted_payload(&self, value: &impl Serialize) -> Result<Payload> {
        let what = "what is emitted";
        small(self.cell.shared.payload_bytes_max, what, payload_or_failure(what, value)?)
    }
}

/// A value for readers of a run; see [`Ctx::emission`].
#[must_use = "it is sent by `send`"]
pub struct Emission {
    ctx: Ctx,
    emitted: Result<Emitted>,
}

impl Emission {
    /// Restricts the value to operators: over a server, keys with the scope `operate`.
    pub fn internal(mut self) -> Self {
        if let Ok(emitted) = &mut self.emitted {
            emitted.audience = Audience::Internal;
        }
        self
    }

    /// Sets meta data of the value, which must be a JSON object.
    pub fn meta(mut self, meta: &impl Serialize) -> Self {
        self.emitted = self.emitted.and_then(|emitted| {
            let meta = self.ctx.emitted_payload(meta)?;
            if meta.data().first() != Some(&b'{') {
                return Err(Failure::fatal("the meta data of what is emitted is not a JSON object"));
            }
            Ok(Emitted { meta: Some(meta), ..emitted })
        });
        self
    }

    /// Sends the value.
    ///
    /// # Errors
    /// Fails if a part of it is too large or cannot be written as JSON, on replay, too.
    pub fn send(self) -> Result<()> {
        drop(self.ctx.cell.call("emit"));
        self.send_at_any_time()
    }

    /// Sends the value, also from the function of a step.
    pub(crate) fn send_at_any_time(self) -> Result<()> {
        let emitted = self.emitted?;
        let cell = &self.ctx.cell;
        let state = cell.lock();
        if !state.engine.is_live() {
            return Ok(());
        }
        let key = state.engine.key().clone();
        drop(state);
        if let Some(outlet) = &cell.shared.outlet {
            outlet.emit(&key, emitted);
        }
        Ok(())
    }
}
