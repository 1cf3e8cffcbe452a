//! Attributes: values by which runs are listed and selected.

use onward_core::AttributeValue;

use super::{Ctx, name_or_misuse};

impl Ctx {
    /// Returns the attributes of this run: small typed values for lists and filters. Code cannot read them; use the state for
    /// that.
    pub fn attributes(&self) -> RunAttributes {
        RunAttributes { ctx: self.clone() }
    }
}

/// See [`Ctx::attributes`].
pub struct RunAttributes {
    ctx: Ctx,
}

impl RunAttributes {
    /// Sets an attribute: a text of at most 255 bytes, an integer, a boolean or a time. A run has at most 32 attributes.
    pub fn set(&self, name: &str, value: impl Into<AttributeValue>) {
        let cell = &self.ctx.cell;
        let name = name_or_misuse(cell, "attribute", name);
        cell.call("attributes().set").engine.set_attribute(name, Some(value.into()));
    }

    /// Removes an attribute.
    pub fn clear(&self, name: &str) {
        let cell = &self.ctx.cell;
        let name = name_or_misuse(cell, "attribute", name);
        cell.call("attributes().clear").engine.set_attribute(name, None);
    }
}
