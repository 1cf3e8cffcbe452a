//! Rejects values that JSON does not round-trip: floats that are not finite, and options inside options.
//!
//! `serde_json` writes `null` for these, which is read back as an error or as `None`. Nulls are rare in recorded values, so a
//! value is checked only if its JSON contains one.

use std::io;

use serde::ser::{self, Serialize, Serializer};
use serde_json::Error;
use serde_json::ser::Formatter;

/// Serializes `value` as JSON. Fails if it would not be read back as it was (P2).
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut text = Vec::with_capacity(128);
    let mut has_null = false;
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, NoticeNull(&mut has_null)))?;
    if has_null {
        value.serialize(Faithful::default())?;
    }
    Ok(text)
}

/// Writes compact JSON and detects nulls.
struct NoticeNull<'a>(&'a mut bool);

impl Formatter for NoticeNull<'_> {
    fn write_null<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        *self.0 = true;
        writer.write_all(b"null")
    }
}

/// A serializer without output that fails at the first value that JSON does not round-trip.
#[derive(Clone, Copy, Default)]
struct Faithful {
    /// The value is directly inside an option, so a null here would be read as that option's `None`.
    in_option: bool,
}

impl Faithful {
    fn null(self) -> Result<(), Error> {
        if self.in_option {
            return Err(ser::Error::custom(
                "a null inside an option cannot be recorded: JSON would read `Some(None)` and `Some(())` back \
                 as `None`; use an enum with a variant for each case",
            ));
        }
        Ok(())
    }
}

fn check(value: f64) -> Result<(), Error> {
    let what = match value {
        _ if value.is_finite() => return Ok(()),
        _ if value.is_nan() => "a float that is not a number cannot be recorded",
        _ => "an infinite float cannot be recorded",
    };
    Err(ser::Error::custom(format!("{what}: JSON cannot represent it")))
}

/// Methods for values that JSON can represent and that contain no others.
macro_rules! plain {
    ($($method:ident($($argument:ty),*);)+) => {
        $(fn $method(self $(, _: $argument)*) -> Result<(), Error> {
            Ok(())
        })+
    };
}

/// Methods for values that contain others, which are checked with the same serializer.
macro_rules! holds_others {
    ($($method:ident($($argument:ty),*);)+) => {
        $(fn $method(self $(, _: $argument)*) -> Result<Faithful, Error> {
            Ok(Faithful::default())
        })+
    };
}

impl Serializer for Faithful {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Faithful;
    type SerializeTuple = Faithful;
    type SerializeTupleStruct = Faithful;
    type SerializeTupleVariant = Faithful;
    type SerializeMap = Faithful;
    type SerializeStruct = Faithful;
    type SerializeStructVariant = Faithful;

    fn serialize_f32(self, value: f32) -> Result<(), Error> {
        check(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        check(value)
    }

    plain! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.null()
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.null()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.null()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(Faithful { in_option: true })
    }

    /// Newtypes have no JSON representation of their own.
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(Faithful::default())
    }

    holds_others! {
        serialize_seq(Option<usize>);
        serialize_tuple(usize);
        serialize_tuple_struct(&'static str, usize);
        serialize_tuple_variant(&'static str, u32, &'static str, usize);
        serialize_map(Option<usize>);
        serialize_struct(&'static str, usize);
        serialize_struct_variant(&'static str, u32, &'static str, usize);
    }
}

macro_rules! elements {
    ($($holder:ident: $method:ident($($key:ty)?);)+) => {
        $(impl ser::$holder for Faithful {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Result<(), Error> {
                value.serialize(*self)
            }

            fn end(self) -> Result<(), Error> {
                Ok(())
            }
        })+
    };
}

elements! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeStruct: serialize_field(&'static str);
    SerializeStructVariant: serialize_field(&'static str);
}

impl ser::SerializeMap for Faithful {
    type Ok = ();
    type Error = Error;

    /// A key that is not finite failed when the text was written.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Result<(), Error> {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(*self)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
