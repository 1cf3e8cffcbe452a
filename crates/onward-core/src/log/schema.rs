//! The codec's messages as `.proto` text and as JSON schemas, so that programs in other languages can read and write them.
//!
//! Owns the syntax. The content comes from the macros that also encode, so the text cannot disagree with the bytes. Must never be
//! needed to encode or decode.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};

/// A field's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proto {
    name: String,
    label: Label,
    /// The JSON schema of its values.
    json: Value,
}

/// The label before a field's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    None,
    Optional,
    Repeated,
}

impl Proto {
    /// Returns the type of this name: a scalar of protobuf, or a message.
    pub fn scalar(name: &str) -> Proto {
        let json = match name {
            "string" | "bytes" => json!({"type": "string"}),
            "bool" => json!({"type": "boolean"}),
            "uint32" => json!({"type": "integer", "format": "uint32", "minimum": 0, "maximum": u32::MAX}),
            "uint64" => json!({"type": "integer", "format": "uint64", "minimum": 0}),
            "sint32" => json!({"type": "integer", "format": "int32", "minimum": i32::MIN, "maximum": i32::MAX}),
            "sint64" => json!({"type": "integer", "format": "int64"}),
            message => json_reference(message),
        };
        Proto { name: name.to_owned(), label: Label::None, json }
    }

    pub fn optional(self) -> Proto {
        Proto { label: Label::Optional, json: nullable(&self.json), ..self }
    }

    pub fn repeated(self) -> Proto {
        Proto { label: Label::Repeated, json: json!({"type": "array", "items": self.json}), ..self }
    }

    /// Replaces the JSON schema, for a type whose JSON form is not that of its `.proto` type.
    pub fn with_json(self, json: Value) -> Proto {
        Proto { json, ..self }
    }

    /// Makes the field optional in what this program reads, without null as a value.
    pub fn omittable(self) -> Proto {
        Proto { label: Label::Optional, ..self }
    }

    /// Returns the JSON schema of the type's values.
    pub fn json(&self) -> &Value {
        &self.json
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

impl FieldLine {
    /// Returns a line without documentation.
    pub fn new(number: u32, name: &'static str, proto: Proto) -> FieldLine {
        FieldLine { number, name, docs: &[], proto }
    }
}

/// The messages and enums collected so far.
#[derive(Debug, Default)]
pub struct Schema {
    blocks: BTreeMap<String, String>,
    json: BTreeMap<String, Value>,
    /// The JSON schemas describe what this program reads, not what it writes.
    is_input: bool,
}

impl Schema {
    /// Returns an empty collection whose JSON schemas describe what this program reads: a field with a default is not required.
    pub fn of_input() -> Schema {
        Schema { is_input: true, ..Schema::default() }
    }

    /// Returns an empty collection for the same direction.
    pub fn empty(&self) -> Schema {
        Schema { is_input: self.is_input, ..Schema::default() }
    }

    pub fn is_input(&self) -> bool {
        self.is_input
    }

    pub fn message(&mut self, name: &str, docs: &[&str], fields: impl FnOnce(&mut Schema) -> Vec<FieldLine>) -> Proto {
        self.block(name, docs, "message", |schema, text| {
            let fields = fields(schema);
            fields.iter().for_each(|field| line(text, "  ", field));
            schema.json.insert(name.to_owned(), json_object(docs, &fields, schema.is_input));
        })
    }

    /// Adds a message with exactly one of its choices set, and the fields `beside` them.
    pub fn one_of(
        &mut self,
        name: &str,
        docs: &[&str],
        field: &str,
        beside: Vec<FieldLine>,
        choices: impl FnOnce(&mut Schema) -> Vec<FieldLine>,
    ) -> Proto {
        self.block(name, docs, "message", |schema, text| {
            let choices = choices(schema);
            schema.set_json_choice(name, docs, &choices);
            *text += &format!("  oneof {field} {{\n");
            choices.iter().for_each(|choice| line(text, "    ", choice));
            *text += "  }\n";
            beside.iter().for_each(|field| line(text, "  ", field));
        })
    }

    /// Adds an enum; a value has a number, a name and a JSON form.
    pub fn enumeration(&mut self, name: &str, docs: &[&str], values: &[(u32, &str, &str)]) -> Proto {
        self.block(name, docs, "enum", |schema, text| {
            let words: Vec<&str> = values.iter().map(|(_, _, word)| *word).collect();
            schema.json.insert(name.to_owned(), described(json!({"type": "string", "enum": words}), docs));
            for (number, value, _) in values {
                // Values of all enums share one scope, hence the prefix.
                *text += &format!("  {}_{} = {number};\n", screaming_snake_case(name), screaming_snake_case(value));
            }
        })
    }

    /// Adds a message with one field, for types without a label of their own: optional lists and lists of lists.
    pub fn wrapper(&mut self, prefix: &str, inner: impl FnOnce(&mut Schema) -> Proto) -> Proto {
        let proto = inner(self);
        let inner_name = proto.name[..1].to_uppercase() + &proto.name[1..];
        let list = if proto.label == Label::Repeated { "List" } else { "" };
        let name = format!("{prefix}{list}{inner_name}");
        // JSON needs no wrapper.
        let json = if prefix == "Optional" { nullable(&proto.json) } else { proto.json.clone() };
        self.message(&name, &[], |_| vec![FieldLine::new(1, "value", proto)]).with_json(json)
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

    /// Returns the JSON schemas of all messages and enums. They refer to each other as components of an OpenAPI document.
    pub fn json(&self) -> &BTreeMap<String, Value> {
        &self.json
    }

    /// Adds or replaces the JSON schema `name`, for a type whose JSON form is not that of its message.
    pub fn set_json(&mut self, name: &str, json: Value) {
        self.json.insert(name.to_owned(), json);
    }

    /// Adds or replaces the JSON schema of an object with exactly one of some fields.
    pub fn set_json_choice(&mut self, name: &str, docs: &[&str], choices: &[FieldLine]) {
        let member = |choice: &FieldLine| {
            let title: String = choice.name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
            let properties = Map::from_iter([(choice.name.to_owned(), choice.proto.json.clone())]);
            let object = json!({"type": "object", "properties": properties, "required": [choice.name]});
            let mut object = described(object, choice.docs);
            object["title"] = json!(format!("{name}{title}"));
            object
        };
        let members: Vec<Value> = choices.iter().map(member).collect();
        self.set_json(name, described(json!({"oneOf": members}), docs));
    }

    /// Adds the JSON schema of a union whose members have the field `type`: a member is the message of the choice with its name as
    /// `type`, under the name of the message with `union` at its end.
    pub fn set_json_tagged(&mut self, union: &str, docs: &[&str], choices: &[FieldLine]) {
        let mut mapping = Map::new();
        for FieldLine { name, proto, .. } in choices {
            let mut member = self.json[&proto.name].clone();
            let mut properties = json!({"type": {"type": "string", "const": name}});
            if let (Some(all), Some(fields)) = (properties.as_object_mut(), member["properties"].as_object_mut()) {
                all.append(fields);
            }
            member["properties"] = properties;
            if let Some(required) = member["required"].as_array_mut() {
                required.insert(0, json!("type"));
            }
            let member_name = format!("{}{union}", proto.name);
            mapping.insert((*name).to_owned(), json_reference(&member_name)["$ref"].take());
            self.set_json(&member_name, member);
        }
        let members: Vec<Value> = mapping.values().map(|member| json!({"$ref": member})).collect();
        let discriminator = json!({"propertyName": "type", "mapping": mapping});
        self.set_json(union, described(json!({"oneOf": members, "discriminator": discriminator}), docs));
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

fn json_reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Returns the schema of values of `json` and of null.
pub fn nullable(json: &Value) -> Value {
    let mut json = json.clone();
    match json.get("type") {
        Some(Value::String(name)) => json["type"] = json!([name, "null"]),
        Some(_) => {}
        None => json = json!({"oneOf": [json, {"type": "null"}]}),
    }
    json
}

fn is_nullable(json: &Value) -> bool {
    let is_null = |value: &Value| *value == json!("null") || value["type"] == "null";
    ["type", "oneOf"].iter().any(|key| json[key].as_array().is_some_and(|members| members.iter().any(is_null)))
}

/// Returns the schema of an object as serde writes it, where a field that it may skip is not required, or as serde reads it, where
/// a field with a default is not.
pub fn json_object(docs: &[&str], fields: &[FieldLine], is_input: bool) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    let has_defaults = is_input && has_serde(docs, "default");
    for FieldLine { name, docs, proto, .. } in fields {
        let has = |word: &str| has_serde(docs, word);
        // Serde reads an absent field as `None`, unless the field has its own function.
        let is_none = (proto.label == Label::Optional || is_nullable(&proto.json)) && !has("with");
        let has_default = has_defaults || is_input && (has("default") || is_none);
        let may_be_skipped = has("skip_serializing_if") || has_default;
        if has("skip_serializing") && !has("skip_serializing_if") {
            continue;
        }
        let json = match (has("text_number"), proto.label) {
            (false, _) => proto.json.clone(),
            (true, Label::Optional) => nullable(&text_number()),
            (true, _) => text_number(),
        };
        properties.insert((*name).to_owned(), described(json, docs));
        if !may_be_skipped {
            required.push(*name);
        }
    }
    let mut object = json!({"type": "object", "properties": properties, "required": required});
    if has_serde(docs, "deny_unknown_fields") {
        object["additionalProperties"] = json!(false);
    }
    described(object, docs)
}

/// Returns whether one of the attributes is an attribute of serde with this word.
pub fn has_serde(attributes: &[&str], word: &str) -> bool {
    attributes.iter().any(|attribute| attribute.starts_with("serde") && attribute.contains(word))
}

/// Returns the schema of a number as text (see [`crate::log::text_number`]).
pub fn text_number() -> Value {
    json!({"type": "string", "pattern": "^[0-9]+$"})
}

/// Adds the documentation of the source to a schema.
fn described(mut json: Value, docs: &[&str]) -> Value {
    let lines: Vec<String> = docs.iter().filter_map(|doc| documentation(doc)).collect();
    if !lines.is_empty() {
        json["description"] = json!(lines.join(" ").replace("[`", "`").replace("`]", "`"));
    }
    json
}

fn comment(text: &mut String, indent: &str, docs: &[&str]) {
    for line in docs.iter().filter_map(|doc| documentation(doc)) {
        *text += &format!("{indent}// {line}\n");
    }
}

/// Returns the text of a `doc = "…"` attribute as in the source; `None` for other attributes.
pub fn documentation(attribute: &str) -> Option<String> {
    let literal = attribute.strip_prefix("doc")?.trim_start().strip_prefix('=')?.trim_start();
    let raw = literal.strip_prefix('r').map(|raw| raw.trim_matches('#'));
    let line = raw.unwrap_or(literal).strip_prefix('"')?.strip_suffix('"')?.trim();
    Some(if raw.is_some() { line.to_owned() } else { line.replace("\\\"", "\"") })
}

/// Converts `RunStarted` to `RUN_STARTED`.
fn screaming_snake_case(name: &str) -> String {
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
