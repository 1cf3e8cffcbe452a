//! Synthetic streams, read without a network.

mod anthropic;
mod generated;
mod openai;
mod requests;

use crate::formats::response::ResponseReader;
use crate::{ApiFormat, Block, CallError, Delta, ModelReply, ProviderPayload, Reasoning, ToolCall};

/// Reads a stream that comes in these pieces and then ends.
fn read_pieces<'a>(
    api_format: ApiFormat,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Result<ModelReply, CallError>, Vec<Delta>) {
    let mut answer = ResponseReader::new(api_format, "p", 1_000_000);
    let mut deltas = Vec::new();
    let mut sink = |delta| deltas.push(delta);
    let fed = pieces.into_iter().try_for_each(|piece| answer.feed(piece, &mut sink));
    let outcome = fed.and_then(|()| answer.end(&mut sink)).and_then(|()| answer.finish());
    (outcome, deltas)
}

/// Reads one event for each text.
fn read(api_format: ApiFormat, events: &[&str]) -> (Result<ModelReply, CallError>, Vec<Delta>) {
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    read_pieces(api_format, [stream.as_bytes()])
}

fn call(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolCall(ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() })
}

fn reasoning(text: &str, json: &str) -> Block {
    let payload = ProviderPayload { provider: "p".into(), json: crate::JsonText::parse(json).unwrap() };
    Block::Reasoning(Reasoning { text: text.into(), payload: Some(payload) })
}
