//! Spans as OTLP messages (`opentelemetry.proto.trace.v1`), by their published field numbers.

use std::time::SystemTime;

use onward_core::codec::{put_bytes, put_nested, put_number, put_varint};

use super::spans::Span;

/// Bit 0 of a span's flags: the span is sampled.
const SAMPLED: u32 = 1;

/// The status code of a failed span.
const ERROR: u64 = 2;

/// Encodes an `ExportTraceServiceRequest` with one resource, one scope and these spans.
pub(super) fn request(service: &str, spans: &[Span]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + spans.len() * 320);
    put_nested(1, &mut out, |resource_spans| {
        put_nested(1, resource_spans, |resource| {
            attribute(1, "service.name", service, resource);
            attribute(1, "telemetry.sdk.name", "onward", resource);
            attribute(1, "telemetry.sdk.language", "rust", resource);
            attribute(1, "telemetry.sdk.version", env!("CARGO_PKG_VERSION"), resource);
        });
        put_nested(2, resource_spans, |scope_spans| {
            put_nested(1, scope_spans, |scope| {
                put_bytes(1, b"onward", scope);
                put_bytes(2, env!("CARGO_PKG_VERSION").as_bytes(), scope);
            });
            for span in spans {
                put_nested(2, scope_spans, |out| put_span(span, out));
            }
        });
    });
    out
}

fn put_span(span: &Span, out: &mut Vec<u8>) {
    put_bytes(1, &span.trace_id, out);
    put_bytes(2, &span.span_id, out);
    if let Some(parent) = &span.parent {
        put_bytes(4, parent, out);
    }
    put_bytes(5, span.name.as_bytes(), out);
    put_number(6, span.kind as u64, out);
    put_fixed64(7, nanos(span.start), out);
    put_fixed64(8, nanos(span.end), out);
    span.attributes.iter().for_each(|(name, value)| attribute(9, name, value, out));
    span.numbers.iter().for_each(|(name, value)| number(9, name, *value, out));
    if let Some(code) = &span.failed {
        put_nested(15, out, |status| {
            put_bytes(2, code.as_bytes(), status);
            put_number(3, ERROR, status);
        });
    }
    put_varint(16 << 3 | 5, out);
    out.extend_from_slice(&SAMPLED.to_le_bytes());
}

/// Writes a `KeyValue` with a text value.
fn attribute(number: u32, name: &str, value: &str, out: &mut Vec<u8>) {
    put_nested(number, out, |pair| {
        put_bytes(1, name.as_bytes(), pair);
        put_nested(2, pair, |any| put_bytes(1, value.as_bytes(), any));
    });
}

/// Writes a `KeyValue` with an integer.
fn number(field: u32, name: &str, value: u64, out: &mut Vec<u8>) {
    put_nested(field, out, |pair| {
        put_bytes(1, name.as_bytes(), pair);
        put_nested(2, pair, |any| {
            put_varint(3 << 3, any); // written even if it is zero: a choice
            put_varint(value, any);
        });
    });
}

fn put_fixed64(number: u32, value: u64, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
