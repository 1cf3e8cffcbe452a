//! Types whose JSON form is their text form.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::spend::PicoDollars;
use crate::{CallId, Hash, Timestamp};

macro_rules! text_form {
    ($($type:ident: $error:literal;)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let text = String::deserialize(deserializer)?;
                $type::parse(&text).ok_or_else(|| de::Error::custom(format_args!("`{text}` is not {}", $error)))
            }
        }
    )*};
}

text_form! {
    CallId: "a call id, like 7 or 2.1.0";
    Hash: "a hash of 32 hex digits";
    // A JSON number might have lost digits as a float.
    PicoDollars: "an amount in dollars, like \"2.50\"";
    Timestamp: "an RFC 3339 time in UTC";
}
