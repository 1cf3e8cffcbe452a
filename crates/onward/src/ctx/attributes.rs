//! Attributes: what a run is found by, from outside.

use onward_core::AttributeValue;

use super::{Ctx, name_or_misuse};

impl Ctx {
    /// What this run is found by in lists: small typed values. Unlike the state, they are not for the code.
    pub fn attributes(&self) -> RunAttributes {
        RunAttributes { ctx: self.clone() }
    }
}

/// See [`Ctx::attributes`].
pub struct RunAttributes {
    ctx: Ctx,
}

impl RunAttributes {
    /// Gives the run an attribute: a text, a whole number, a yes or no, or a time. A run has at most 32, and a text 255 bytes.
    pub fn set(&self, name: &str, value: impl Into<AttributeValue>) {
        let cell = &self.ctx.cell;
        let name = name_or_misuse(cell, "attribute", name);
        cell.call("attributes().set").engine.set_attribute(name, Some(value.into()));
    }

    /// Takes an attribute away.
    pub fn clear(&self, name: &str) {
        let cell = &self.ctx.cell;
        let name = name_or_misuse(cell, "attribute", name);
        cell.call("attributes().clear").engine.set_attribute(name, None);
    }
}
