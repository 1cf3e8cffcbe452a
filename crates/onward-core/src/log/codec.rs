//! The binary encoding of everything in a log.
//!
//! Owns the wire rules: numbered fields, varints and length-delimited bytes (the protobuf encoding). A field can be added without
//! a new format version, and older readers skip unknown fields. Must never panic on foreign bytes: decoding is total.
//!
//! Invariants:
//! - C1: `decode(encode(x)) == x`.
//! - C2: a field number is never reused for another meaning.

use bytes::Bytes;
use serde_json::json;

use crate::conversation::EntryCursor;
use crate::log::CommitId;
use crate::log::schema::{FieldLine, Proto, Schema, text_number};
use crate::spend::PicoDollars;
use crate::{CallId, Epoch, Failure, Hash, Index, Name, Namespace, Payload, RunId, Timestamp, WorkerId};

/// An error of decoding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the bytes end in the middle of a value")]
    Truncated,
    #[error("field {field} of {message} is missing")]
    Missing { message: &'static str, field: &'static str },
    #[error("field holds an invalid {what}")]
    Invalid { what: &'static str },
    #[error("event kind {number} is unknown to this version of Onward")]
    UnknownEvent { number: u32 },
}

/// The raw value of one field.
#[derive(Debug, Clone, Copy)]
pub enum Raw<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

impl<'a> Raw<'a> {
    pub fn varint(self, what: &'static str) -> Result<u64, DecodeError> {
        match self {
            Raw::Varint(value) => Ok(value),
            Raw::Bytes(_) => Err(DecodeError::Invalid { what }),
        }
    }

    pub fn bytes(self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        match self {
            Raw::Bytes(value) => Ok(value),
            Raw::Varint(_) => Err(DecodeError::Invalid { what }),
        }
    }

    fn text(self, what: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(what)?).map_err(|_| DecodeError::Invalid { what })
    }
}

/// The shape of a field's value; it determines the encoding of optional values and lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Length-delimited: an optional value is the field or its absence, a list is one field per value.
    Delimited,
    /// A varint: a list is one field with all values (`packed`).
    Varint,
    /// Repeated. protobuf has no label for an optional list or a list of lists, so each is wrapped in a message with one field.
    Many,
}

/// Read in `const` blocks, so that a list or an optional value has only the code of its shape.
impl Shape {
    const fn is_many(self) -> bool {
        matches!(self, Shape::Many)
    }

    const fn is_varint(self) -> bool {
        matches!(self, Shape::Varint)
    }
}

/// A value of a numbered field.
pub trait Field: Sized {
    const SHAPE: Shape = Shape::Delimited;

    /// Encodes the field; may omit a value that equals the one of an absent field.
    fn encode(&self, number: u32, out: &mut Vec<u8>);

    /// Encodes the field even if it has the default value, for fields whose presence matters.
    fn encode_present(&self, number: u32, out: &mut Vec<u8>) {
        self.encode(number, out);
    }

    fn decode(raw: Raw<'_>) -> Result<Self, DecodeError>;

    /// Decodes one more occurrence of the field; only repeated fields keep more than the last one.
    fn merge(slot: &mut Option<Self>, raw: Raw<'_>) -> Result<(), DecodeError> {
        *slot = Some(Self::decode(raw)?);
        Ok(())
    }

    /// Returns the value of an absent field; `None` makes the field required.
    fn absent() -> Option<Self> {
        None
    }

    /// Returns the `.proto` type of the field and adds its messages to `schema`. Implementations are `#[inline]`: only generators
    /// of documents call them, and the compiler generates code for an inline function only where it is called.
    fn proto(schema: &mut Schema) -> Proto;

    /// Calls `visit` with each payload in the value, in the order of the fields.
    fn visit_payloads<'a>(&'a self, _visit: &mut dyn FnMut(&'a Payload)) {}

    /// Calls `visit` with each payload in the value, to change it.
    fn visit_payloads_mut(&mut self, _visit: &mut dyn FnMut(&mut Payload)) {}

    /// Returns the call id, if the value is one.
    fn as_call_id(&self) -> Option<&CallId> {
        None
    }
}

/// A struct of numbered fields.
pub trait Message: Sized {
    fn encode_fields(&self, out: &mut Vec<u8>);
    fn decode_fields(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Returns the first field that is a call id.
    fn call_id(&self) -> Option<&CallId> {
        None
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        self.encode_fields(&mut out);
        out
    }
}

pub fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_number(number: u32, value: u64, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3, out);
    put_varint(value, out);
}

pub fn put_bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | 2, out);
    put_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Writes a length-delimited field whose content `fill` appends.
pub fn put_nested(number: u32, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = begin_nested(number, out);
    fill(out);
    end_nested(start, out);
}

fn begin_nested(number: u32, out: &mut Vec<u8>) -> usize {
    put_varint(u64::from(number) << 3 | 2, out);
    out.push(0);
    out.len()
}

/// Writes the length of the content that begins at `start` before it.
fn end_nested(start: usize, out: &mut Vec<u8>) {
    let length = out.len() - start;
    if length < 0x80 {
        out[start - 1] = length as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(5);
    put_varint(length as u64, &mut prefix);
    out.splice(start - 1..start, prefix);
}

/// Returns the value of an absent field of a message.
pub fn absent<T: Field>(message: &'static str, field: &'static str) -> Result<T, DecodeError> {
    T::absent().ok_or(DecodeError::Missing { message, field })
}

/// Iterates over the fields of one message. Unknown wire types are errors; callers skip unknown numbers.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Invalid { what: "varint" })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        if self.rest.len() < length {
            return Err(DecodeError::Truncated);
        }
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next field, or `None` at the end.
    pub fn field(&mut self) -> Result<Option<(u32, Raw<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| DecodeError::Invalid { what: "field number" })?;
        let raw = match key & 7 {
            0 => Raw::Varint(self.varint()?),
            1 => Raw::Bytes(self.take(8)?),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| DecodeError::Truncated)?;
                Raw::Bytes(self.take(length)?)
            }
            5 => Raw::Bytes(self.take(4)?),
            _ => return Err(DecodeError::Invalid { what: "wire type" }),
        };
        Ok(Some((number, raw)))
    }
}

/// Declares structs together with their field numbers.
#[macro_export]
macro_rules! message {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$fmeta:meta])* $number:literal => $field:ident: $type:ty),* $(,)? })*) => {$(
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        $(#[$meta])*
        $vis struct $name { $($(#[$fmeta])* pub $field: $type,)* }

        impl $crate::log::codec::Message for $name {
            fn encode_fields(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $($crate::log::codec::Field::encode(&self.$field, $number, out);)*
            }

            fn decode_fields(bytes: &[u8]) -> Result<Self, $crate::log::codec::DecodeError> {
                let mut reader = $crate::log::codec::Reader::new(bytes);
                $(let mut $field: Option<$type> = None;)*
                while let Some((number, raw)) = reader.field()? {
                    let _ = &raw;
                    match number {
                        $($number => <$type as $crate::log::codec::Field>::merge(&mut $field, raw)?,)*
                        _ => {}
                    }
                }
                Ok($name {
                    $($field: match $field {
                        Some(value) => value,
                        None => $crate::log::codec::absent(stringify!($name), stringify!($field))?,
                    },)*
                })
            }

            fn call_id(&self) -> Option<&$crate::CallId> {
                $(if let Some(id) = $crate::log::codec::Field::as_call_id(&self.$field) {
                    return Some(id);
                })*
                None
            }
        }

        impl $crate::log::codec::Field for $name {
            fn visit_payloads<'a>(&'a self, visit: &mut dyn FnMut(&'a $crate::Payload)) {
                let _ = &visit;
                $($crate::log::codec::Field::visit_payloads(&self.$field, visit);)*
            }
            fn visit_payloads_mut(&mut self, visit: &mut dyn FnMut(&mut $crate::Payload)) {
                let _ = &visit;
                $($crate::log::codec::Field::visit_payloads_mut(&mut self.$field, visit);)*
            }
            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                $crate::log::codec::put_nested(number, out, |out| $crate::log::codec::Message::encode_fields(self, out));
            }
            fn decode(raw: $crate::log::codec::Raw<'_>) -> Result<Self, $crate::log::codec::DecodeError> {
                <$name as $crate::log::codec::Message>::decode_fields(raw.bytes(stringify!($name))?)
            }
            #[inline]
            fn proto(schema: &mut $crate::log::schema::Schema) -> $crate::log::schema::Proto {
                schema.message(stringify!($name), &[$(stringify!($meta)),*], |schema| {
                    let _ = &schema;
                    vec![$($crate::log::schema::FieldLine {
                        number: $number,
                        name: stringify!($field).trim_start_matches("r#"),
                        docs: &[$(stringify!($fmeta)),*],
                        proto: <$type as $crate::log::codec::Field>::proto(schema),
                    },)*]
                })
            }
        }
    )*};
}

/// Declares an enum of unit variants with stable numbers and words; the word is also the JSON form.
#[macro_export]
macro_rules! numbered {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $number:literal => $variant:ident / $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        $vis enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Returns the number of this value in every stored form; never reused.
            pub fn number(self) -> u8 {
                match self { $($name::$variant => $number,)* }
            }

            pub fn from_number(number: u64) -> Option<$name> {
                match number { $($number => Some($name::$variant),)* _ => None }
            }

            /// Returns the stable word.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

            pub fn from_word(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl $crate::log::codec::Field for $name {
            const SHAPE: $crate::log::codec::Shape = $crate::log::codec::Shape::Varint;

            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                $crate::log::codec::put_number(number, u64::from(self.number()), out);
            }
            fn decode(raw: $crate::log::codec::Raw<'_>) -> Result<Self, $crate::log::codec::DecodeError> {
                let what = stringify!($name);
                $name::from_number(raw.varint(what)?).ok_or($crate::log::codec::DecodeError::Invalid { what })
            }
            // Other protobuf writers omit the value with number zero.
            fn absent() -> Option<Self> {
                $name::from_number(0)
            }
            #[inline]
            fn proto(schema: &mut $crate::log::schema::Schema) -> $crate::log::schema::Proto {
                schema.enumeration(stringify!($name), &[$(stringify!($meta)),*], &[$(($number, stringify!($variant), $word)),*])
            }
        }
    };
}

/// Declares an enum with numbered variants (a `oneof`); its JSON form is `{"variant": …}`, which keeps payloads byte for byte.
#[macro_export]
macro_rules! choice {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $number:literal => $variant:ident / $text:literal: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        $vis enum $name { $($(#[$vmeta])* #[serde(rename = $text)] $variant($type),)* }

        impl $crate::log::codec::Message for $name {
            fn encode_fields(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant(value) => $crate::log::codec::Field::encode_present(value, $number, out),)*
                }
            }

            fn decode_fields(bytes: &[u8]) -> Result<Self, $crate::log::codec::DecodeError> {
                let mut reader = $crate::log::codec::Reader::new(bytes);
                while let Some((number, raw)) = reader.field()? {
                    match number {
                        $($number => return <$type as $crate::log::codec::Field>::decode(raw).map($name::$variant),)*
                        _ => {}
                    }
                }
                Err($crate::log::codec::DecodeError::Invalid { what: stringify!($name) })
            }
        }

        impl $crate::log::codec::Field for $name {
            fn visit_payloads<'a>(&'a self, visit: &mut dyn FnMut(&'a $crate::Payload)) {
                match self { $($name::$variant(value) => $crate::log::codec::Field::visit_payloads(value, visit),)* }
            }
            fn visit_payloads_mut(&mut self, visit: &mut dyn FnMut(&mut $crate::Payload)) {
                match self { $($name::$variant(value) => $crate::log::codec::Field::visit_payloads_mut(value, visit),)* }
            }
            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                $crate::log::codec::put_nested(number, out, |out| $crate::log::codec::Message::encode_fields(self, out));
            }
            fn decode(raw: $crate::log::codec::Raw<'_>) -> Result<Self, $crate::log::codec::DecodeError> {
                <$name as $crate::log::codec::Message>::decode_fields(raw.bytes(stringify!($name))?)
            }
            #[inline]
            fn proto(schema: &mut $crate::log::schema::Schema) -> $crate::log::schema::Proto {
                schema.one_of(stringify!($name), &[$(stringify!($meta)),*], "is", Vec::new(), |schema| vec![
                    $($crate::log::schema::FieldLine {
                        number: $number,
                        name: $text,
                        docs: &[$(stringify!($vmeta)),*],
                        proto: <$type as $crate::log::codec::Field>::proto(schema),
                    },)*
                ])
            }
        }
    };
}

/// Implements [`Field`] for types that are encoded as a varint, with the conversions to and from a `u64`.
macro_rules! varint_field {
    ($($(#[$doc:meta])* $type:ty: $proto:literal $(as $json:expr)?, $into:expr, $from:expr;)*) => {$(
        $(#[$doc])*
        impl Field for $type {
            const SHAPE: Shape = Shape::Varint;

            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                let into: fn($type) -> u64 = $into;
                if into(*self) != 0 {
                    put_number(number, into(*self), out);
                }
            }
            fn encode_present(&self, number: u32, out: &mut Vec<u8>) {
                let into: fn($type) -> u64 = $into;
                put_number(number, into(*self), out);
            }
            fn decode(raw: Raw<'_>) -> Result<$type, DecodeError> {
                let from: fn(u64) -> Option<$type> = $from;
                from(raw.varint("number")?).ok_or(DecodeError::Invalid { what: "number" })
            }
            fn absent() -> Option<$type> {
                Some(<$type>::default())
            }
            #[inline]
            fn proto(_: &mut Schema) -> Proto {
                Proto::scalar($proto)$(.with_json($json))?
            }
        }
    )*};
}

varint_field! {
    u64: "uint64", |number| number, Some;
    u32: "uint32", u64::from, |number| u32::try_from(number).ok();
    /// A count, such as a page size: a `uint32`, so that every language has a plain number for it.
    usize: "uint32", |count| u64::from(u32::try_from(count).unwrap_or(u32::MAX)), |number| Some(u32::try_from(number).ok()? as usize);
    i32: "sint32", |number| zigzag(number.into()), |number| i32::try_from(unzigzag(number)).ok();
    i64: "sint64", zigzag, |number| Some(unzigzag(number));
    bool: "bool", u64::from, |number| Some(number != 0);
    Timestamp: "uint64" as json!({"type": "string", "format": "date-time"}), |at| at.0, |number| Some(Timestamp(number));
    Index: "uint64", |index| index.0, |number| Some(Index(number));
    Epoch: "uint64", |epoch| epoch.0, |number| Some(Epoch(number));
    CommitId: "uint64" as text_number(), |id| id.0, |number| Some(CommitId(number));
    PicoDollars: "uint64" as json!({"type": "string", "description": "Dollars, such as `2.50`", "pattern": "^[0-9]+(\\.[0-9]{1,12})?$"}), |money| money.0, |number| Some(PicoDollars(number));
}

/// Encodes a protobuf `sint32` or `sint64`.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

impl Field for String {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if !self.is_empty() {
            put_bytes(number, self.as_bytes(), out);
        }
    }
    fn encode_present(&self, number: u32, out: &mut Vec<u8>) {
        put_bytes(number, self.as_bytes(), out);
    }
    fn decode(raw: Raw<'_>) -> Result<String, DecodeError> {
        raw.text("text").map(str::to_owned)
    }
    fn absent() -> Option<String> {
        Some(String::new())
    }
    #[inline]
    fn proto(_: &mut Schema) -> Proto {
        Proto::scalar("string")
    }
}

impl Field for Bytes {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_bytes(number, self, out);
    }
    fn decode(raw: Raw<'_>) -> Result<Bytes, DecodeError> {
        raw.bytes("bytes").map(Bytes::copy_from_slice)
    }
    // Other protobuf writers omit empty bytes.
    fn absent() -> Option<Bytes> {
        Some(Bytes::new())
    }
    #[inline]
    fn proto(_: &mut Schema) -> Proto {
        Proto::scalar("bytes")
    }
}

/// A present optional field is always written, even if it is zero or empty.
impl<T: Field> Field for Option<T> {
    const SHAPE: Shape = Shape::Many;

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let Some(value) = self else { return };
        if const { T::SHAPE.is_many() } {
            put_nested(number, out, |out| value.encode(1, out));
        } else {
            value.encode_present(number, out);
        }
    }
    fn decode(raw: Raw<'_>) -> Result<Option<T>, DecodeError> {
        if const { T::SHAPE.is_many() } { unwrapped(raw).map(Some) } else { T::decode(raw).map(Some) }
    }
    fn absent() -> Option<Option<T>> {
        Some(None)
    }
    #[inline]
    fn proto(schema: &mut Schema) -> Proto {
        if const { T::SHAPE.is_many() } { schema.wrapper("Optional", T::proto) } else { T::proto(schema).optional() }
    }
    fn visit_payloads<'a>(&'a self, visit: &mut dyn FnMut(&'a Payload)) {
        if let Some(value) = self {
            value.visit_payloads(visit);
        }
    }
    fn visit_payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
        if let Some(value) = self {
            value.visit_payloads_mut(visit);
        }
    }
}

/// Writes varints one after another.
fn put_packed<T: Field>(values: &[T], out: &mut Vec<u8>) {
    let mut field = Vec::new();
    for value in values {
        field.clear();
        value.encode_present(0, &mut field);
        // The key of field 0 is one byte; the varint follows.
        out.extend_from_slice(&field[1..]);
    }
}

/// Decodes the one-field message around an optional list or a list of lists.
fn unwrapped<T: Field>(raw: Raw<'_>) -> Result<T, DecodeError> {
    let mut reader = Reader::new(raw.bytes("value")?);
    let mut slot = None;
    while let Some((number, raw)) = reader.field()? {
        if number == 1 {
            T::merge(&mut slot, raw)?;
        }
    }
    slot.or_else(T::absent).ok_or(DecodeError::Invalid { what: "value" })
}

impl<T: Field> Field for Box<T> {
    const SHAPE: Shape = T::SHAPE;

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        (**self).encode(number, out);
    }
    fn encode_present(&self, number: u32, out: &mut Vec<u8>) {
        (**self).encode_present(number, out);
    }
    fn decode(raw: Raw<'_>) -> Result<Box<T>, DecodeError> {
        T::decode(raw).map(Box::new)
    }
    fn absent() -> Option<Box<T>> {
        T::absent().map(Box::new)
    }
    #[inline]
    fn proto(schema: &mut Schema) -> Proto {
        T::proto(schema)
    }
    fn visit_payloads<'a>(&'a self, visit: &mut dyn FnMut(&'a Payload)) {
        (**self).visit_payloads(visit);
    }
    fn visit_payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
        (**self).visit_payloads_mut(visit);
    }
}

impl<T: Field> Field for Vec<T> {
    const SHAPE: Shape = Shape::Many;

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if const { T::SHAPE.is_varint() } {
            if !self.is_empty() {
                put_nested(number, out, |out| put_packed(self, out));
            }
            return;
        }
        for value in self {
            if const { T::SHAPE.is_many() } {
                put_nested(number, out, |out| value.encode(1, out));
            } else {
                value.encode_present(number, out);
            }
        }
    }
    fn decode(raw: Raw<'_>) -> Result<Vec<T>, DecodeError> {
        let mut slot = None;
        Self::merge(&mut slot, raw)?;
        Ok(slot.unwrap_or_default())
    }
    fn merge(slot: &mut Option<Vec<T>>, raw: Raw<'_>) -> Result<(), DecodeError> {
        let list = slot.get_or_insert_default();
        // A writer may pack numbers into one field or write one field per number.
        if const { T::SHAPE.is_varint() }
            && let Raw::Bytes(packed) = raw
        {
            let mut reader = Reader::new(packed);
            while !reader.is_empty() {
                list.push(T::decode(Raw::Varint(reader.varint()?))?);
            }
            return Ok(());
        }
        list.push(if const { T::SHAPE.is_many() } { unwrapped(raw)? } else { T::decode(raw)? });
        Ok(())
    }
    fn absent() -> Option<Vec<T>> {
        Some(Vec::new())
    }
    #[inline]
    fn proto(schema: &mut Schema) -> Proto {
        let proto = if const { T::SHAPE.is_many() } { schema.wrapper("Each", T::proto) } else { T::proto(schema) };
        proto.repeated()
    }
    fn visit_payloads<'a>(&'a self, visit: &mut dyn FnMut(&'a Payload)) {
        for value in self {
            value.visit_payloads(visit);
        }
    }
    fn visit_payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
        for value in self {
            value.visit_payloads_mut(visit);
        }
    }
}

/// `Ok` is field 1, `Err` is field 2.
impl Field for Result<Payload, Failure> {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_nested(number, out, |out| match self {
            Ok(payload) => payload.encode(1, out),
            Err(failure) => failure.encode(2, out),
        });
    }
    fn decode(raw: Raw<'_>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(raw.bytes("result")?);
        while let Some((number, raw)) = reader.field()? {
            match number {
                1 => return Ok(Ok(Payload::decode(raw)?)),
                2 => return Ok(Err(Failure::decode(raw)?)),
                _ => {}
            }
        }
        Err(DecodeError::Invalid { what: "result" })
    }
    #[inline]
    fn proto(schema: &mut Schema) -> Proto {
        let lines = |schema: &mut Schema, [ok, failed]: [&'static str; 2]| {
            vec![FieldLine::new(1, ok, Payload::proto(schema)), FieldLine::new(2, failed, Failure::proto(schema))]
        };
        let proto = schema.one_of("Outcome", &[], "result", Vec::new(), |schema| lines(schema, ["ok", "failed"]));
        // Serde names the variants of `Result` like Rust.
        let json = lines(schema, ["Ok", "Err"]);
        schema.set_json_choice("Outcome", &[], &json);
        proto
    }
    fn visit_payloads<'a>(&'a self, visit: &mut dyn FnMut(&'a Payload)) {
        match self {
            Ok(payload) => payload.visit_payloads(visit),
            Err(failure) => failure.visit_payloads(visit),
        }
    }
    fn visit_payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
        match self {
            Ok(payload) => payload.visit_payloads_mut(visit),
            Err(failure) => failure.visit_payloads_mut(visit),
        }
    }
}

/// Implements [`Field`] for types that are encoded as a text, with the conversions.
macro_rules! text_field {
    ($($type:ty: $what:literal, $text:ident, $read:expr;)*) => {$(
        impl Field for $type {
            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                put_bytes(number, self.$text().as_bytes(), out);
            }
            fn decode(raw: Raw<'_>) -> Result<Self, DecodeError> {
                let read: fn(&str) -> Option<$type> = $read;
                read(raw.text($what)?).ok_or(DecodeError::Invalid { what: $what })
            }
            #[inline]
            fn proto(_: &mut Schema) -> Proto {
                Proto::scalar("string")
            }
        }
    )*};
}

text_field! {
    Name: "name", as_str, |text| Name::new(text).ok();
    RunId: "run id", as_str, |text| RunId::new(text).ok();
    Namespace: "namespace", as_str, |text| Namespace::new(text).ok();
    WorkerId: "worker id", as_str, |text| WorkerId::new(text).ok();
    EntryCursor: "entry cursor", to_string, |text| text.parse().ok();
}

impl Field for Hash {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_bytes(number, &self.0, out);
    }
    fn decode(raw: Raw<'_>) -> Result<Hash, DecodeError> {
        let bytes = raw.bytes("hash")?;
        bytes.try_into().map(Hash).map_err(|_| DecodeError::Invalid { what: "hash" })
    }
    #[inline]
    fn proto(_: &mut Schema) -> Proto {
        Proto::scalar("bytes")
    }
}

impl Field for CallId {
    const SHAPE: Shape = Shape::Many;

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_nested(number, out, |out| self.path().for_each(|step| put_varint(u64::from(step), out)));
    }
    fn decode(raw: Raw<'_>) -> Result<CallId, DecodeError> {
        let mut reader = Reader::new(raw.bytes("call id")?);
        let first = u32::try_from(reader.varint()?).map_err(|_| DecodeError::Invalid { what: "call id" })?;
        if reader.is_empty() {
            return Ok(CallId::root(first));
        }
        let mut path = vec![first];
        while !reader.is_empty() {
            path.push(u32::try_from(reader.varint()?).map_err(|_| DecodeError::Invalid { what: "call id" })?);
        }
        CallId::from_path(&path).ok_or(DecodeError::Invalid { what: "call id" })
    }
    #[inline]
    fn proto(_: &mut Schema) -> Proto {
        Proto::scalar("uint32").repeated().with_json(json!({"type": "string"}))
    }
    fn as_call_id(&self) -> Option<&CallId> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
