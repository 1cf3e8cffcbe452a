//! Requests about promises.

use crate::{Namespace, message};

message! {
    /// A request for the id of the promise that has a key, or had it last.
    pub struct FindPromiseRequest { 1 => namespace: Namespace, 2 => key: String }

    /// The id of a promise, with which it is resolved.
    pub struct FindPromiseReply { 1 => promise: String }
}
