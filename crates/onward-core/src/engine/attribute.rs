//! Attributes: what a run is found by. Set by the code, read by nobody but stores.

use super::Engine;
use crate::Name;
use crate::log::event::AttributeSet;
use crate::run::attribute::{ATTRIBUTES_MAX, AttributeValue, check_value};

impl Engine {
    /// Gives the run an attribute, or takes it away. What is out of bounds is the code's mistake (AT1).
    pub fn set_attribute(&mut self, name: Name, value: Option<AttributeValue>) {
        let place = self.next_place();
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
        self.out.push(AttributeSet { place, name, value }.into());
    }
}
