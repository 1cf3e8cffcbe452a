//! Server reflection for clients without a `.proto` file: `grpc.reflection.v1`, and `v1alpha` for older clients.
//!
//! Serves only descriptors that are part of the binary, like `/openapi.json`, so it needs no key.

use axum::Router;
use tonic_reflection::server::Builder;

use super::public::{ConnectionLimit, TimeLimit, method};
use crate::{Server, WAIT_MAX};

const V1: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const V1_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(onward_wire::DESCRIPTOR)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

pub(super) fn routes(server: &Server, limit: &ConnectionLimit) -> Router {
    const SOUND: &str = "the built-in descriptors are valid";
    let (v1, v1_alpha) = (builder().build_v1().expect(SOUND), builder().build_v1alpha().expect(SOUND));
    let time_limit = TimeLimit::AtMost(WAIT_MAX);
    Router::new()
        .route(V1, method(server, limit, V1, time_limit, v1))
        .route(V1_ALPHA, method(server, limit, V1_ALPHA, time_limit, v1_alpha))
}
