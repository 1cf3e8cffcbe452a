//! Random responses, written like a provider, split like a network, and read back.
//!
//! `ONWARD_SEED=7` repeats a run; a failure prints its seed.

use serde_json::{Value, json};

use super::{call, read_pieces, reasoning};
use crate::{ApiFormat, Block, Delta};

const ROUNDS: u64 = 400;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn text(&mut self) -> String {
        let letters = ["a", " ", "\n", "\r\n", "ż", "🐢", "\"", "\\", "{", "}", "data: ", "\u{2028}", "é", "0"];
        (0..1 + self.below(12)).map(|_| letters[self.below(letters.len())]).collect()
    }

    /// Splits a text into pieces of whole characters, some of them empty.
    fn pieces(&mut self, text: &str) -> Vec<String> {
        let mut pieces = vec![String::new()];
        for c in text.chars() {
            if self.below(3) == 0 {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push(c);
        }
        pieces
    }

    /// Merges the lists at random, each in its own order.
    fn shuffle(&mut self, mut lists: Vec<Vec<Value>>) -> Vec<Value> {
        let mut mixed = Vec::new();
        lists.iter_mut().for_each(|list| list.reverse());
        while !lists.is_empty() {
            let at = self.below(lists.len());
            match lists[at].pop() {
                Some(item) => mixed.push(item),
                None => drop(lists.remove(at)),
            }
        }
        mixed
    }

    fn calls(&mut self) -> Vec<Block> {
        let arguments = |random: &mut Random| match random.below(3) {
            0 => random.text(), // usually not JSON
            _ => json!({"text": random.text(), "n": random.next()}).to_string(),
        };
        (0..self.below(4)).map(|at| call(&format!("id{at}"), &format!("tool{at}"), &arguments(self))).collect()
    }
}

fn parts(block: &Block) -> (String, String, String) {
    match block {
        Block::ToolCall(call) => (call.id.clone(), call.name.clone(), call.arguments.clone()),
        _ => unreachable!("only calls are generated"),
    }
}

/// Writes Chat Completions: reasoning, text and calls follow each other, and the fragments of calls are mixed.
fn openai(random: &mut Random) -> (Vec<Block>, Vec<String>) {
    let (thought, text, calls) = (random.text(), random.text(), random.calls());
    let mut events: Vec<Value> = random.pieces(&thought).into_iter().map(|piece| json!({"reasoning_content": piece})).collect();
    events.extend(random.pieces(&text).into_iter().map(|piece| json!({"content": piece})));
    let mut lists = Vec::new();
    for (at, (id, name, arguments)) in calls.iter().map(parts).enumerate() {
        // Each call begins before the next one, which defines their order.
        events.push(json!({"tool_calls": [{"index": at, "id": id, "function": {"name": name}}]}));
        let fragments = random.pieces(&arguments).into_iter();
        lists.push(fragments.map(|piece| json!({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})).collect());
    }
    events.extend(random.shuffle(lists));
    let chunk = |delta: &Value| {
        json!({"id": "r", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}).to_string()
    };
    let mut events: Vec<String> = events.iter().map(chunk).collect();
    events.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).to_string());
    events.push("[DONE]".into());
    let head = [reasoning(&thought, &json!({"reasoning_content": thought}).to_string()), Block::text(text)];
    (head.into_iter().chain(calls).collect(), events)
}

/// Writes Messages: every block has an index, and their events are mixed.
fn anthropic(random: &mut Random) -> (Vec<Block>, Vec<String>) {
    let (thought, text, calls) = (random.text(), random.text(), random.calls());
    let delta = |at: usize, delta: Value| json!({"type": "content_block_delta", "index": at, "delta": delta});
    let start = |at: usize, block: Value| json!({"type": "content_block_start", "index": at, "content_block": block});
    let mut lists =
        vec![vec![start(0, json!({"type": "thinking", "thinking": ""}))], vec![start(1, json!({"type": "text", "text": ""}))]];
    lists[0].extend(random.pieces(&thought).into_iter().map(|piece| delta(0, json!({"thinking": piece}))));
    lists[0].push(delta(0, json!({"signature": "c2ln"})));
    lists[1].extend(random.pieces(&text).into_iter().map(|piece| delta(1, json!({"text": piece}))));
    for (at, (id, name, arguments)) in calls.iter().map(parts).enumerate() {
        let mut list = vec![start(at + 2, json!({"type": "tool_use", "id": id, "name": name, "input": {}}))];
        list.extend(random.pieces(&arguments).into_iter().map(|piece| delta(at + 2, json!({"partial_json": piece}))));
        lists.push(list);
    }
    let mut events = vec![json!({"type": "message_start", "message": {"id": "r", "model": "m", "content": []}})];
    events.extend(random.shuffle(lists));
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}));
    events.push(json!({"type": "message_stop"}));
    // In the form for the provider, field by field.
    let signed = format!(r#"{{"type":"thinking","thinking":{},"signature":"c2ln"}}"#, json!(thought));
    let blocks = [reasoning(&thought, &signed), Block::text(text)].into_iter().chain(calls);
    (blocks.collect(), events.iter().map(Value::to_string).collect())
}

/// Writes the events as a server may: with any line end, comments and names.
fn stream(random: &mut Random, events: &[String]) -> String {
    let end = ["\n", "\r\n", "\r"][random.below(3)];
    let mut stream = String::new();
    for event in events {
        if random.below(4) == 0 {
            stream.push_str(&format!(": keep-alive{end}{end}"));
        }
        if random.below(2) == 0 {
            stream.push_str(&format!("event: x{end}"));
        }
        stream.push_str(&format!("data:{}{event}{end}{end}", [" ", ""][random.below(2)]));
    }
    stream
}

fn cut<'a>(random: &mut Random, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let longest = 1 + random.below(40);
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(random.below(longest + 1).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// Returns what a reader of the deltas has at the end.
fn collect_deltas(deltas: &[Delta]) -> (String, String, Vec<String>) {
    let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
    for delta in deltas {
        match delta {
            Delta::Text { text: piece } => text.push_str(piece),
            Delta::Reasoning { text: piece } => thought.push_str(piece),
            Delta::ToolCallBegin { call, .. } => {
                assert_eq!(*call as usize, calls.len());
                calls.push(String::new());
            }
            Delta::ToolCallArguments { call, text: piece } => calls[*call as usize].push_str(piece),
            Delta::Begin { .. } | Delta::Refusal { .. } | Delta::Usage(_) => {}
        }
    }
    (text, thought, calls)
}

#[test]
fn an_answer_is_the_same_however_it_is_cut() {
    let seed =
        std::env::var("ONWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| u64::from(std::process::id()));
    println!("reproduce with ONWARD_SEED={seed}");
    let mut random = Random(seed);
    for round in 0..ROUNDS {
        let api_format = if round % 2 == 0 { ApiFormat::OpenAi } else { ApiFormat::Anthropic };
        let (blocks, events) = if api_format == ApiFormat::OpenAi { openai(&mut random) } else { anthropic(&mut random) };
        let stream = stream(&mut random, &events);
        let (whole, _) = read_pieces(api_format, [stream.as_bytes()]);
        let pieces = cut(&mut random, stream.as_bytes());
        let (reply, deltas) = read_pieces(api_format, pieces);
        assert_eq!(reply, whole, "round {round}"); // LA1
        let reply = reply.unwrap();
        let (text, thought, mut calls) = collect_deltas(&deltas);
        // Calls are announced in the order of their first fragments; only their contents are compared.
        calls.sort();
        let mut arguments: Vec<String> = reply.calls().map(|call| call.arguments.clone()).collect();
        arguments.sort();
        assert_eq!((text, calls), (reply.text(), arguments), "round {round}");
        let Block::Reasoning(first) = &reply.blocks[0] else { panic!("round {round}: {:?}", reply.blocks) };
        assert_eq!(first.text, thought);
        assert_eq!(reply.blocks, blocks, "round {round}: {stream}");
    }
}
