//! Lists of payloads as one payload: the input of a run that has the inputs of a batch.

use super::Payload;
use crate::message;

/// The content type of a list with encrypted items; a list of JSON is JSON.
const LIST: &str = "application/vnd.onward.list";

message! {
    /// The bytes of a list with encrypted items.
    struct PayloadItems { 1 => items: Vec<Payload> }
}

impl Payload {
    /// Returns a list of these payloads: a JSON array if all are JSON, otherwise a list whose items are decrypted one by one.
    pub fn list(items: &[Payload]) -> Payload {
        use crate::log::codec::Message;
        if !items.iter().all(Payload::is_json) {
            return Payload::binary(LIST, PayloadItems { items: items.to_vec() }.to_bytes());
        }
        let mut text = vec![b'['];
        for (position, item) in items.iter().enumerate() {
            if position > 0 {
                text.push(b',');
            }
            text.extend_from_slice(item.data());
        }
        text.push(b']');
        Payload::from_json_text(text)
    }

    /// Returns the items of a list with encrypted items; `None` for any other payload.
    pub fn list_items(&self) -> Option<Vec<Payload>> {
        use crate::log::codec::Message;
        if self.content_type() != LIST {
            return None;
        }
        PayloadItems::decode_fields(self.data()).ok().map(|list| list.items)
    }
}
