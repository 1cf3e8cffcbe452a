//! Messages over gRPC: the codec, and the methods by name.

use std::marker::PhantomData;

use bytes::{Buf, BufMut};
use onward_core::codec::{DecodeError, Field, Message};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};

use crate::problem::{Advice, Problem};

/// One method of a service.
pub trait Method: 'static {
    /// `/onward.v1.Service/Method`.
    const PATH: &'static str;
    type Request: Message + Field + Send + Sync + 'static;
    type Reply: Message + Field + Send + Sync + 'static;
}

/// The header with the namespace of a call or stream; without it, the default one.
pub const NAMESPACE: &str = "onward-namespace";

/// A worker's stream.
pub const CONNECT: &str = "/onward.v1.Workers/Connect";

/// The stream of what a run emits.
pub const LISTEN: &str = "/onward.v1.Runs/ListenRun";

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

/// Returns the status of a call whose message cannot be decoded.
fn undecodable(error: &DecodeError) -> Status {
    let problem = Problem {
        code: "message_invalid".to_owned(),
        message: format!("the message cannot be decoded: {error}"),
        hint: Some("generate the client from the server's own .proto file, which reflection serves".to_owned()),
        advice: Advice::TellCaller,
    };
    problem.to_status(Code::InvalidArgument)
}

/// Declares the methods of one service, and a list of them for the `.proto` file.
macro_rules! service {
    ($service:literal, $lines:ident { $($(#[$meta:meta])* $name:ident: $request:ident => $reply:ident,)* }) => {
        $(
            $(#[$meta])*
            pub struct $name;

            impl $crate::grpc::Method for $name {
                const PATH: &'static str = concat!("/onward.v1.", $service, "/", stringify!($name));
                type Request = $request;
                type Reply = $reply;
            }
        )*

        /// Returns the methods for the `.proto` file and adds their messages to `schema`.
        pub fn $lines(schema: &mut onward_core::schema::Schema) -> Vec<$crate::proto::MethodLine> {
            use onward_core::codec::Field;
            vec![$($crate::proto::MethodLine {
                name: stringify!($name),
                docs: &[$(stringify!($meta)),*],
                request: $request::proto(schema).name().to_owned(),
                reply: $reply::proto(schema).name().to_owned(),
            },)*]
        }
    };
}
pub(crate) use service;
