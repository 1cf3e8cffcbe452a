//! User data: opaque bytes with a content type.
//!
//! Invariants:
//! - P1 (L22): bytes are returned as they were written, by every store and API.
//! - P2: a value that JSON cannot represent is rejected on write, instead of being lost on read.
//! - P3: an accepted value is read as it was written, floats bit for bit, so that live execution and replay see one value.

mod list;

use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use serde_json::value::RawValue;

use crate::log::codec::{DecodeError, Field, Raw, Reader, put_bytes, put_nested};
use crate::log::schema::{FieldLine, Proto, Schema};

/// The default content type.
pub const JSON: &str = "application/json";

/// The prefix of an encrypted payload's content type; the name of the key follows.
const SEALED: &str = "application/vnd.onward.sealed;key=";

/// The prefix of an encrypted payload's text form.
const SEALED_TEXT: &str = "encrypted with key ";

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload {
    /// `None` means JSON.
    content_type: Option<Box<str>>,
    data: Bytes,
}

impl Payload {
    /// Serializes `value` as JSON. Fails for values that JSON does not round-trip: a float that is not finite, an option inside
    /// an option.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Payload, serde_json::Error> {
        Ok(Payload::from_json_text(crate::log::faithful::to_json(value)?))
    }

    /// Wraps JSON text, which is stored unchanged.
    pub fn from_json_text(text: impl Into<Bytes>) -> Payload {
        Payload { content_type: None, data: text.into() }
    }

    pub fn binary(content_type: &str, data: impl Into<Bytes>) -> Payload {
        Payload { content_type: own_type(content_type), data: data.into() }
    }

    /// Wraps encrypted data. Its first 16 bytes are the payload's identity, set by the process that encrypted it.
    pub fn sealed(key: &str, data: impl Into<Bytes>) -> Payload {
        Payload::binary(&format!("{SEALED}{key}"), data)
    }

    /// Returns the name of the key if the payload is encrypted.
    pub fn sealed_with(&self) -> Option<&str> {
        self.content_type.as_deref()?.strip_prefix(SEALED)
    }

    /// Encodes an encrypted payload as text that names the key.
    pub fn to_sealed_text(&self) -> Option<String> {
        self.sealed_with().map(|key| format!("{SEALED_TEXT}{key}: {}", base64_encode(&self.data)))
    }

    pub fn from_sealed_text(text: &str) -> Option<Payload> {
        let (key, data) = text.strip_prefix(SEALED_TEXT)?.split_once(": ")?;
        base64_decode(data).map(|data| Payload::sealed(key, data))
    }

    pub fn null() -> Payload {
        Payload::from_json_text(Bytes::from_static(b"null"))
    }

    pub fn content_type(&self) -> &str {
        self.content_type.as_deref().unwrap_or(JSON)
    }

    pub fn is_json(&self) -> bool {
        self.content_type.is_none()
    }

    /// Returns the canonical form of a JSON payload (ADR 0003); other payloads are returned unchanged.
    pub fn canonical(&self) -> Payload {
        let text = self.is_json().then(|| crate::hash::canonical_json(&self.data)).flatten();
        text.map_or_else(|| self.clone(), Payload::from_json_text)
    }

    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Deserializes the JSON text.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        if !self.is_json() {
            return Err(serde_json::Error::custom(format!("the payload is {}, not JSON", self.content_type())));
        }
        serde_json::from_slice(&self.data)
    }
}

/// Returns the content type as stored: `None` for an empty one and for JSON in any spelling.
fn own_type(content_type: &str) -> Option<Box<str>> {
    (!content_type.is_empty() && !is_type(content_type, JSON)).then(|| content_type.into())
}

/// Returns true if the content type is `wanted`; a charset, if named, must be UTF-8.
pub fn is_type(found: &str, wanted: &str) -> bool {
    let mut parts = found.split(';').map(str::trim);
    let is_wanted = parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case(wanted));
    let charset = |part: &str| {
        let (name, value) = part.split_once('=')?;
        name.trim_end().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    };
    is_wanted && parts.filter_map(charset).all(|charset| charset == "utf-8" || charset == "utf8")
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = self.sealed_with() {
            return write!(f, "<{} bytes encrypted with key {key}>", self.data.len());
        }
        match std::str::from_utf8(&self.data) {
            Ok(text) if self.is_json() => f.write_str(text),
            _ => write!(f, "<{} bytes of {}>", self.data.len(), self.content_type()),
        }
    }
}

impl Field for Payload {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_nested(number, out, |out| {
            put_bytes(1, &self.data, out);
            if let Some(content_type) = &self.content_type {
                put_bytes(2, content_type.as_bytes(), out);
            }
        });
    }
    fn decode(raw: Raw<'_>) -> Result<Payload, DecodeError> {
        let mut reader = Reader::new(raw.bytes("payload")?);
        let mut payload = Payload { content_type: None, data: Bytes::new() };
        while let Some((number, raw)) = reader.field()? {
            match number {
                1 => payload.data = Bytes::decode(raw)?,
                2 => payload.content_type = own_type(&String::decode(raw)?),
                _ => {}
            }
        }
        Ok(payload)
    }
    #[inline]
    fn proto(schema: &mut Schema) -> Proto {
        let proto = schema.message("Payload", &[], |_| {
            let docs = &["doc = \"Absent stands for JSON.\""];
            let content_type = FieldLine { docs, ..FieldLine::new(2, "content_type", Proto::scalar("string").optional()) };
            vec![FieldLine::new(1, "data", Proto::scalar("bytes")), content_type]
        });
        schema.set_json(
            "Payload",
            json!({
                "description": "User data: JSON with its exact text, or other data in base64 with its content type",
                "oneOf": [
                    {"title": "JsonPayload", "type": "object", "properties": {"json": {"description": "Any JSON value"}}, "required": ["json"]},
                    {
                        "title": "BytesPayload",
                        "type": "object",
                        "properties": {"base64": {"type": "string"}, "type": {"type": "string"}},
                        "required": ["base64", "type"],
                    },
                ],
            }),
        );
        proto
    }
    fn visit_payloads<'a>(&'a self, visit: &mut dyn FnMut(&'a Payload)) {
        visit(self);
    }
    fn visit_payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
        visit(self);
    }
}

/// `{"json": …}` with the original text for valid JSON on one line, else `{"base64": "…", "type": "…"}`.
impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = std::str::from_utf8(&self.data).ok().filter(|text| self.is_json() && !text.contains(['\n', '\r']));
        if let Some(raw) = text.and_then(|text| serde_json::from_str::<&RawValue>(text).ok())
            && raw.get().len() == self.data.len()
        {
            let mut object = serializer.serialize_struct("Payload", 1)?;
            object.serialize_field("json", raw)?;
            return object.end();
        }
        let mut object = serializer.serialize_struct("Payload", 2)?;
        object.serialize_field("base64", &base64_encode(&self.data))?;
        object.serialize_field("type", self.content_type())?;
        object.end()
    }
}

/// Deserializes a field that is present, even if it is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            #[serde(default, deserialize_with = "present")]
            json: Option<Box<RawValue>>,
            base64: Option<String>,
            r#type: Option<String>,
        }
        let wire = Wire::deserialize(deserializer)?;
        match (wire.json, wire.base64) {
            (Some(json), None) => Ok(Payload::from_json_text(Box::<str>::from(json).into_boxed_bytes())),
            (None, Some(text)) => {
                let data = base64_decode(&text).ok_or_else(|| D::Error::custom("invalid base64"))?;
                Ok(Payload::binary(wire.r#type.as_deref().unwrap_or(JSON), data))
            }
            _ => Err(D::Error::custom("a payload has either `json` or `base64`")),
        }
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64_encode(data: &[u8]) -> String {
    let mut out = String::with_capacity(data.len().div_ceil(3) * 4);
    for chunk in data.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for position in 0..4 {
            let sextet = (bits >> (18 - 6 * position)) & 63;
            out.push(if position <= chunk.len() { ALPHABET[sextet as usize] as char } else { '=' });
        }
    }
    out
}

fn base64_decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for &symbol in chunk {
            let value = ALPHABET.iter().position(|&letter| letter == symbol)?;
            bits = bits << 6 | value as u32;
        }
        bits <<= 6 * (4 - chunk.len());
        let bytes = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
        out.extend_from_slice(bytes.get(..chunk.len().checked_sub(1)?)?);
    }
    Some(out)
}

#[cfg(test)]
mod tests;
