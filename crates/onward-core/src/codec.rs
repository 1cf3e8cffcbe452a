//! The binary form of everything a log holds.
//!
//! Owns the wire rules: numbered fields, varints and length-delimited bytes (the protobuf encoding), so that
//! a field may be added without a new format version and an older reader skips what it does not know.
//! Must never panic on foreign bytes: decoding is total.
//!
//! Invariants:
//! - C1: `decode(encode(x)) == x`.
//! - C2: a field number is never reused for another meaning.

use bytes::Bytes;

use crate::log::CommitId;
use crate::schema::{FieldLine, Proto, Schema};
use crate::{Epoch, Failure, Hash, Index, Name, Payload, Place, RunId, Timestamp};

/// Why bytes could not be read back.
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

/// One field's value as it stands on the wire.
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

/// A value that can stand in a numbered field.
pub trait Field: Sized {
    fn encode(&self, number: u32, out: &mut Vec<u8>);
    fn decode(raw: Raw<'_>) -> Result<Self, DecodeError>;

    /// Takes one more occurrence of the field; only repeated fields keep more than the last.
    fn merge(slot: &mut Option<Self>, raw: Raw<'_>) -> Result<(), DecodeError> {
        *slot = Some(Self::decode(raw)?);
        Ok(())
    }

    /// What an absent field means; `None` makes the field required.
    fn absent() -> Option<Self> {
        None
    }

    /// The field's type as `.proto` files say it; messages it is made of are added to `schema`.
    fn proto(schema: &mut Schema) -> Proto;
}

/// A struct of numbered fields.
pub trait Message: Sized {
    fn encode_fields(&self, out: &mut Vec<u8>);
    fn decode_fields(bytes: &[u8]) -> Result<Self, DecodeError>;

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
    put_varint(u64::from(number) << 3 | 2, out);
    let start = out.len();
    out.push(0);
    fill(out);
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(5);
    put_varint(length as u64, &mut prefix);
    out.splice(start..=start, prefix);
}

/// Walks the fields of one message; unknown wire types end in an error, unknown numbers are the caller's to skip.
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

    /// The next field, or `None` at the end.
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

/// Declares a struct together with its field numbers.
#[macro_export]
macro_rules! message {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$fmeta:meta])* $number:literal => $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        $vis struct $name { $($(#[$fmeta])* pub $field: $type,)* }

        impl $crate::codec::Message for $name {
            fn encode_fields(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $($crate::codec::Field::encode(&self.$field, $number, out);)*
            }

            fn decode_fields(bytes: &[u8]) -> Result<Self, $crate::codec::DecodeError> {
                let mut reader = $crate::codec::Reader::new(bytes);
                $(let mut $field: Option<$type> = None;)*
                while let Some((number, raw)) = reader.field()? {
                    let _ = &raw;
                    match number {
                        $($number => <$type as $crate::codec::Field>::merge(&mut $field, raw)?,)*
                        _ => {}
                    }
                }
                Ok($name {
                    $($field: match $field.or_else(<$type as $crate::codec::Field>::absent) {
                        Some(value) => value,
                        None => return Err($crate::codec::DecodeError::Missing {
                            message: stringify!($name),
                            field: stringify!($field),
                        }),
                    },)*
                })
            }
        }

        impl $crate::codec::Field for $name {
            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                $crate::codec::put_nested(number, out, |out| $crate::codec::Message::encode_fields(self, out));
            }
            fn decode(raw: $crate::codec::Raw<'_>) -> Result<Self, $crate::codec::DecodeError> {
                <$name as $crate::codec::Message>::decode_fields(raw.bytes(stringify!($name))?)
            }
            fn proto(schema: &mut $crate::schema::Schema) -> $crate::schema::Proto {
                schema.message(stringify!($name), &[$(stringify!($meta)),*], |schema| {
                    let _ = &schema;
                    vec![$($crate::schema::FieldLine {
                        number: $number,
                        name: stringify!($field),
                        docs: &[$(stringify!($fmeta)),*],
                        proto: <$type as $crate::codec::Field>::proto(schema),
                    },)*]
                })
            }
        }
    };
}

/// Declares an enum of unit variants with stable numbers; text form is snake_case.
#[macro_export]
macro_rules! numbered {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $number:literal => $variant:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        $vis enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The number that stands for this value wherever it is stored; never reused.
            pub fn number(self) -> u8 {
                match self { $($name::$variant => $number,)* }
            }

            pub fn from_number(number: u64) -> Option<$name> {
                match number { $($number => Some($name::$variant),)* _ => None }
            }
        }

        impl $crate::codec::Field for $name {
            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                $crate::codec::put_number(number, u64::from(self.number()), out);
            }
            fn decode(raw: $crate::codec::Raw<'_>) -> Result<Self, $crate::codec::DecodeError> {
                let what = stringify!($name);
                $name::from_number(raw.varint(what)?).ok_or($crate::codec::DecodeError::Invalid { what })
            }
            fn proto(schema: &mut $crate::schema::Schema) -> $crate::schema::Proto {
                schema.enumeration(stringify!($name), &[$(stringify!($meta)),*], &[$(($number, stringify!($variant))),*])
            }
        }
    };
}

/// Declares an enum of which exactly one numbered variant is there; its JSON form is `{"variant": …}`, which keeps payloads byte for
/// byte.
#[macro_export]
macro_rules! choice {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $number:literal => $variant:ident / $text:literal: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        $vis enum $name { $($(#[$vmeta])* #[serde(rename = $text)] $variant($type),)* }

        impl $crate::codec::Message for $name {
            fn encode_fields(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant(value) => $crate::codec::Field::encode(value, $number, out),)*
                }
            }

            fn decode_fields(bytes: &[u8]) -> Result<Self, $crate::codec::DecodeError> {
                let mut reader = $crate::codec::Reader::new(bytes);
                while let Some((number, raw)) = reader.field()? {
                    match number {
                        $($number => return <$type as $crate::codec::Field>::decode(raw).map($name::$variant),)*
                        _ => {}
                    }
                }
                Err($crate::codec::DecodeError::Invalid { what: stringify!($name) })
            }
        }

        impl $crate::codec::Field for $name {
            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                $crate::codec::put_nested(number, out, |out| $crate::codec::Message::encode_fields(self, out));
            }
            fn decode(raw: $crate::codec::Raw<'_>) -> Result<Self, $crate::codec::DecodeError> {
                <$name as $crate::codec::Message>::decode_fields(raw.bytes(stringify!($name))?)
            }
            fn proto(schema: &mut $crate::schema::Schema) -> $crate::schema::Proto {
                schema.one_of(stringify!($name), &[$(stringify!($meta)),*], "is", |schema| vec![
                    $($crate::schema::FieldLine {
                        number: $number,
                        name: $text,
                        docs: &[$(stringify!($vmeta)),*],
                        proto: <$type as $crate::codec::Field>::proto(schema),
                    },)*
                ])
            }
        }
    };
}

impl Field for u64 {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if *self != 0 {
            put_number(number, *self, out);
        }
    }
    fn decode(raw: Raw<'_>) -> Result<u64, DecodeError> {
        raw.varint("number")
    }
    fn absent() -> Option<u64> {
        Some(0)
    }
    fn proto(_: &mut Schema) -> Proto {
        Proto::scalar("uint64")
    }
}

impl Field for u32 {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        u64::from(*self).encode(number, out);
    }
    fn decode(raw: Raw<'_>) -> Result<u32, DecodeError> {
        u32::try_from(raw.varint("number")?).map_err(|_| DecodeError::Invalid { what: "number" })
    }
    fn absent() -> Option<u32> {
        Some(0)
    }
    fn proto(_: &mut Schema) -> Proto {
        Proto::scalar("uint32")
    }
}

impl Field for i32 {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let zigzag = ((*self << 1) ^ (*self >> 31)) as u32;
        zigzag.encode(number, out);
    }
    fn decode(raw: Raw<'_>) -> Result<i32, DecodeError> {
        let zigzag = u32::decode(raw)?;
        Ok((zigzag >> 1) as i32 ^ -((zigzag & 1) as i32))
    }
    fn absent() -> Option<i32> {
        Some(0)
    }
    fn proto(_: &mut Schema) -> Proto {
        Proto::scalar("sint32")
    }
}

impl Field for bool {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        u64::from(*self).encode(number, out);
    }
    fn decode(raw: Raw<'_>) -> Result<bool, DecodeError> {
        Ok(raw.varint("flag")? != 0)
    }
    fn absent() -> Option<bool> {
        Some(false)
    }
    fn proto(_: &mut Schema) -> Proto {
        Proto::scalar("bool")
    }
}

impl Field for String {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if !self.is_empty() {
            put_bytes(number, self.as_bytes(), out);
        }
    }
    fn decode(raw: Raw<'_>) -> Result<String, DecodeError> {
        raw.text("text").map(str::to_owned)
    }
    fn absent() -> Option<String> {
        Some(String::new())
    }
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
    fn proto(_: &mut Schema) -> Proto {
        Proto::scalar("bytes")
    }
}

/// An optional field is written only when it is there. Inner values must not use absence for a value of their own,
/// so the zero of a number is wrapped in a nested field.
impl<T: Field> Field for Option<T> {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(value) = self {
            put_nested(number, out, |out| value.encode(1, out));
        }
    }
    fn decode(raw: Raw<'_>) -> Result<Option<T>, DecodeError> {
        let mut reader = Reader::new(raw.bytes("optional value")?);
        let mut slot = None;
        while let Some((number, raw)) = reader.field()? {
            if number == 1 {
                T::merge(&mut slot, raw)?;
            }
        }
        match slot.or_else(T::absent) {
            Some(value) => Ok(Some(value)),
            None => Err(DecodeError::Invalid { what: "optional value" }),
        }
    }
    fn absent() -> Option<Option<T>> {
        Some(None)
    }
    fn proto(schema: &mut Schema) -> Proto {
        schema.wrapper("Optional", T::proto)
    }
}

impl<T: Field> Field for Box<T> {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        (**self).encode(number, out);
    }
    fn decode(raw: Raw<'_>) -> Result<Box<T>, DecodeError> {
        T::decode(raw).map(Box::new)
    }
    fn absent() -> Option<Box<T>> {
        T::absent().map(Box::new)
    }
    fn proto(schema: &mut Schema) -> Proto {
        T::proto(schema)
    }
}

impl<T: Field> Field for Vec<T> {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        for value in self {
            put_nested(number, out, |out| value.encode(1, out));
        }
    }
    fn decode(raw: Raw<'_>) -> Result<Vec<T>, DecodeError> {
        let mut slot = None;
        Self::merge(&mut slot, raw)?;
        Ok(slot.unwrap_or_default())
    }
    fn merge(slot: &mut Option<Vec<T>>, raw: Raw<'_>) -> Result<(), DecodeError> {
        if let Some(value) = Option::<T>::decode(raw)? {
            slot.get_or_insert_default().push(value);
        }
        Ok(())
    }
    fn absent() -> Option<Vec<T>> {
        Some(Vec::new())
    }
    fn proto(schema: &mut Schema) -> Proto {
        schema.wrapper("Each", T::proto).repeated()
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
    fn proto(schema: &mut Schema) -> Proto {
        schema.one_of("Outcome", &[], "result", |schema| {
            vec![
                FieldLine { number: 1, name: "ok", docs: &[], proto: Payload::proto(schema) },
                FieldLine { number: 2, name: "failed", docs: &[], proto: Failure::proto(schema) },
            ]
        })
    }
}

macro_rules! text_field {
    ($($type:ty: $what:literal),*) => {$(
        impl Field for $type {
            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                put_bytes(number, self.as_str().as_bytes(), out);
            }
            fn decode(raw: Raw<'_>) -> Result<Self, DecodeError> {
                <$type>::new(raw.text($what)?).map_err(|_| DecodeError::Invalid { what: $what })
            }
            fn proto(_: &mut Schema) -> Proto {
                Proto::scalar("string")
            }
        }
    )*};
}
text_field!(Name: "name", RunId: "run id", crate::Namespace: "namespace", crate::WorkerId: "worker id");

macro_rules! number_field {
    ($($type:ident),*) => {$(
        impl Field for $type {
            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                self.0.encode(number, out);
            }
            fn decode(raw: Raw<'_>) -> Result<Self, DecodeError> {
                u64::decode(raw).map($type)
            }
            fn absent() -> Option<Self> {
                Some($type(0))
            }
            fn proto(_: &mut Schema) -> Proto {
                Proto::scalar("uint64")
            }
        }
    )*};
}

number_field!(Timestamp, Index, Epoch, CommitId);

impl Field for Hash {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_bytes(number, &self.0, out);
    }
    fn decode(raw: Raw<'_>) -> Result<Hash, DecodeError> {
        let bytes = raw.bytes("hash")?;
        bytes.try_into().map(Hash).map_err(|_| DecodeError::Invalid { what: "hash" })
    }
    fn proto(_: &mut Schema) -> Proto {
        Proto::scalar("bytes")
    }
}

impl Field for Place {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_nested(number, out, |out| self.path().for_each(|step| put_varint(u64::from(step), out)));
    }
    fn decode(raw: Raw<'_>) -> Result<Place, DecodeError> {
        let mut reader = Reader::new(raw.bytes("place")?);
        let first = u32::try_from(reader.varint()?).map_err(|_| DecodeError::Invalid { what: "place" })?;
        if reader.is_empty() {
            return Ok(Place::root(first));
        }
        let mut path = vec![first];
        while !reader.is_empty() {
            path.push(u32::try_from(reader.varint()?).map_err(|_| DecodeError::Invalid { what: "place" })?);
        }
        Place::from_path(&path).ok_or(DecodeError::Invalid { what: "place" })
    }
    fn proto(_: &mut Schema) -> Proto {
        Proto::scalar("uint32").repeated()
    }
}
