//! Generator of the OpenAPI document.

mod openapi;
pub(crate) mod shape;
