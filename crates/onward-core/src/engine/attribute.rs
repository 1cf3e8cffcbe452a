//! Attributes: values for listing and selecting runs. Set by the code, read by stores only.

use super::Engine;
use crate::Name;
use crate::log::event::AttributeSet;
use crate::run::attribute::{ATTRIBUTES_MAX, AttributeValue, check_value};

impl Engine {
    /// Sets or removes an attribute. A value out of bounds is a misuse (AT1).
    pub fn set_attribute(&mut self, name: Name, value: Option<AttributeValue>) {
        let call_id = self.next_call_id();
        if let Some(error) = value.as_ref().and_then(|value| check_value(&name, value).err()) {
            return self.misuse(error.to_string());
        }
        match value {
            Some(_) => self.attributes.insert(name.clone()),
            None => self.attributes.remove(&name),
        };
        if self.attributes.len() > ATTRIBUTES_MAX {
            return self.misuse(format!("a run has at most {ATTRIBUTES_MAX} attributes"));
        }
        self.out.push(AttributeSet { call_id, name, value }.into());
    }
}
