//! Messages over gRPC: the codec, and the methods by name.

use std::marker::PhantomData;

use bytes::{Buf, BufMut, Bytes};
use onward_core::ErrorCode;
use onward_core::api::Call;
use onward_core::codec::{DecodeError, Message};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};

use crate::problem::{Advice, Problem};

/// The header with the namespace of a call or stream; without it, the default one.
pub const NAMESPACE: &str = "onward-namespace";

/// A worker's stream.
pub const CONNECT: &str = "/onward.v1.Workers/Connect";

/// The stream of what a run emits.
pub const LISTEN: &str = "/onward.v1.Runs/ListenRun";

/// The stream of the live view of a run.
pub const WATCH: &str = "/onward.v1.Runs/WatchRun";

/// The stream of the outcomes of any number of runs.
pub const AWAIT_ENDS: &str = "/onward.v1.Runs/AwaitEnds";

/// A tonic codec with the encoding of the log.
pub struct Wire<E, D>(PhantomData<fn() -> (E, D)>);

impl<E, D> Default for Wire<E, D> {
    fn default() -> Self {
        Wire(PhantomData)
    }
}

impl<E: Message + Send + 'static, D: Message + Send + 'static> Codec for Wire<E, D> {
    type Encode = E;
    type Decode = D;
    type Encoder = Wire<E, D>;
    type Decoder = Wire<E, D>;

    fn encoder(&mut self) -> Self::Encoder {
        Wire::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Wire::default()
    }
}

impl<E: Message, D> Encoder for Wire<E, D> {
    type Item = E;
    type Error = Status;

    fn encode(&mut self, item: E, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(&item.to_bytes());
        Ok(())
    }
}

impl<E, D: Message> Decoder for Wire<E, D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        D::decode_fields(&bytes).map(Some).map_err(|error| undecodable(&error))
    }
}

/// A tonic codec that passes messages as bytes: the verb of the call determines their type.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untyped;

impl Codec for Untyped {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Untyped;
    type Decoder = Untyped;

    fn encoder(&mut self) -> Untyped {
        Untyped
    }

    fn decoder(&mut self) -> Untyped {
        Untyped
    }
}

impl Encoder for Untyped {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Untyped {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Returns the status of a call whose message cannot be decoded.
pub fn undecodable(error: &DecodeError) -> Status {
    let problem = Problem {
        code: ErrorCode::MessageInvalid.into(),
        message: format!("the message cannot be decoded: {error}"),
        hint: Some("generate the client from the server's own .proto file, which reflection serves".to_owned()),
        advice: Advice::Fail,
        retry_after_ms: None,
    };
    problem.to_status(Code::InvalidArgument)
}

macro_rules! paths {
    ($($(#[$meta:meta])* $method:ident $name:ident($request:ident) -> $reply:ident, $scope:ident;)*) => {
        /// Returns the path of a verb's method, `/onward.v1.Runs/Name`.
        pub fn path_of(call: &Call) -> &'static str {
            match call { $(Call::$name(_) => concat!("/onward.v1.Runs/", stringify!($name)),)* }
        }
    };
}

onward_core::with_verbs!(paths);
