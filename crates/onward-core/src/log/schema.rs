//! The codec's messages as `.proto` text, so that programs in other languages can read and write them.
//!
//! Owns the syntax. The content comes from the macros that also encode, so the text cannot disagree with the bytes. Must never be
//! needed to encode or decode.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A field's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proto {
    name: String,
    label: Label,
}

/// The label before a field's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    None,
    Optional,
    Repeated,
}

impl Proto {
    pub fn scalar(name: &str) -> Proto {
        Proto { name: name.to_owned(), label: Label::None }
    }

    pub fn optional(self) -> Proto {
        Proto { label: Label::Optional, ..self }
    }

    pub fn repeated(self) -> Proto {
        Proto { label: Label::Repeated, ..self }
    }

    /// Returns the type's name, without its label.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// One line of a message.
pub struct FieldLine {
    pub number: u32,
    pub name: &'static str,
    /// Attributes of the source; doc attributes become comments.
    pub docs: &'static [&'static str],
    pub proto: Proto,
}

/// The messages and enums collected so far.
#[derive(Debug, Default)]
pub struct Schema {
    blocks: BTreeMap<String, String>,
}

impl Schema {
    pub fn message(&mut self, name: &str, docs: &[&str], fields: impl FnOnce(&mut Schema) -> Vec<FieldLine>) -> Proto {
        self.block(name, docs, "message", |schema, text| fields(schema).iter().for_each(|field| line(text, "  ", field)))
    }

    /// Adds a message with exactly one of its fields set.
    pub fn one_of(
        &mut self,
        name: &str,
        docs: &[&str],
        field: &str,
        choices: impl FnOnce(&mut Schema) -> Vec<FieldLine>,
    ) -> Proto {
        self.one_of_beside(name, docs, field, Vec::new(), choices)
    }

    /// Adds a message with exactly one of its choices set, and other fields.
    pub fn one_of_beside(
        &mut self,
        name: &str,
        docs: &[&str],
        field: &str,
        beside: Vec<FieldLine>,
        choices: impl FnOnce(&mut Schema) -> Vec<FieldLine>,
    ) -> Proto {
        self.block(name, docs, "message", |schema, text| {
            let choices = choices(schema);
            *text += &format!("  oneof {field} {{\n");
            choices.iter().for_each(|choice| line(text, "    ", choice));
            *text += "  }\n";
            beside.iter().for_each(|field| line(text, "  ", field));
        })
    }

    pub fn enumeration(&mut self, name: &str, docs: &[&str], values: &[(u32, &str)]) -> Proto {
        self.block(name, docs, "enum", |_, text| {
            for (number, value) in values {
                // Values of all enums share one scope, hence the prefix.
                *text += &format!("  {}_{} = {number};\n", shout(name), shout(value));
            }
        })
    }

    /// Adds a message with one field, for types without a label of their own: optional lists and lists of lists.
    pub fn wrapper(&mut self, prefix: &str, inner: impl FnOnce(&mut Schema) -> Proto) -> Proto {
        let proto = inner(self);
        let inner_name = proto.name[..1].to_uppercase() + &proto.name[1..];
        let list = if proto.label == Label::Repeated { "List" } else { "" };
        let name = format!("{prefix}{list}{inner_name}");
        self.message(&name, &[], |_| vec![FieldLine { number: 1, name: "value", docs: &[], proto }])
    }

    fn block(&mut self, name: &str, docs: &[&str], keyword: &str, fill: impl FnOnce(&mut Schema, &mut String)) -> Proto {
        if !self.blocks.contains_key(name) {
            // Inserted before it is filled, because a message may contain itself.
            self.blocks.insert(name.to_owned(), String::new());
            let mut text = String::new();
            comment(&mut text, "", docs);
            text += &format!("{keyword} {name} {{\n");
            fill(self, &mut text);
            text += "}\n";
            self.blocks.insert(name.to_owned(), text);
        }
        Proto::scalar(name)
    }

    /// Returns all messages and enums, sorted by name.
    pub fn text(&self) -> String {
        self.blocks.values().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

fn line(text: &mut String, indent: &str, field: &FieldLine) {
    comment(text, indent, field.docs);
    let label = match field.proto.label {
        Label::None => "",
        Label::Optional => "optional ",
        Label::Repeated => "repeated ",
    };
    let FieldLine { number, name, proto, .. } = field;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{indent}{label}{} {name} = {number};", proto.name);
}

fn comment(text: &mut String, indent: &str, docs: &[&str]) {
    for said in docs.iter().filter_map(|doc| documentation(doc)) {
        *text += &format!("{indent}// {said}\n");
    }
}

/// Returns the text of a `doc = "…"` attribute as in the source; `None` for other attributes.
pub fn documentation(attribute: &str) -> Option<String> {
    let literal = attribute.strip_prefix("doc")?.trim_start().strip_prefix('=')?.trim_start();
    let raw = literal.strip_prefix('r').map(|raw| raw.trim_matches('#'));
    let said = raw.unwrap_or(literal).strip_prefix('"')?.strip_suffix('"')?.trim();
    Some(if raw.is_some() { said.to_owned() } else { said.replace("\\\"", "\"") })
}

/// Converts `RunStarted` to `RUN_STARTED`.
fn shout(name: &str) -> String {
    let mut out = String::new();
    for (position, letter) in name.char_indices() {
        if letter.is_uppercase() && position > 0 {
            out.push('_');
        }
        out.extend(letter.to_uppercase());
    }
    out
}

#[cfg(test)]
mod tests;
