//! The program, and the routes by which other programs set its script.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

struct Program {
    process: Child,
    address: String,
}

impl Program {
    fn start() -> Program {
        let mut process = Command::new(env!("CARGO_BIN_EXE_scripted-model")).arg("0").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = ready["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        Program { process, address }
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let body = body.to_string();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }

    fn ask(&self, text: &str) -> (u16, Value) {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": text}]});
        let (status, answer) = self.send("POST", "/v1/chat/completions", &body);
        (status, answer["choices"][0]["message"]["content"].clone())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn answers_come_first_then_rules_then_the_persona() {
    let program = Program::start();
    assert_eq!(program.send("POST", "/script/answers", &json!({"parts": [{"text": "first"}]})).0, 204);
    let rule = json!({"when": {"user_says": "hello", "turn": 0}, "answer": {"parts": [{"text": "once"}]}, "times": 1});
    assert_eq!(program.send("POST", "/script/rules", &rule).0, 204);
    assert_eq!(program.ask("hello"), (200, json!("first")));
    assert_eq!(program.ask("good day"), (200, json!("You said: good day")));
    assert_eq!(program.ask("oh, hello"), (200, json!("once")));
    assert_eq!(program.ask("oh, hello"), (200, json!("You said: oh, hello")));
    let (_, script) = program.send("GET", "/script", &Value::Null);
    assert_eq!(
        (&script["request_count"], &script["requests"][2]["body"]["messages"][0]["content"]),
        (&json!(4), &json!("oh, hello"))
    );
    assert_eq!(program.send("DELETE", "/script", &Value::Null).0, 204);
    assert_eq!(program.send("GET", "/script", &Value::Null).1["request_count"], 0);
}

#[test]
fn what_real_servers_refuse_is_refused_and_counted() {
    let program = Program::start();
    let user = json!({"role": "user", "content": "go"});
    let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "1"});
    let ask = |messages: Value| program.send("POST", "/v1/chat/completions", &json!({"model": "m", "messages": messages})).0;
    assert_eq!(ask(json!([user, calls, result("a")])), 200);
    assert_eq!(ask(json!([user, calls])), 400); // no result
    assert_eq!(ask(json!([user, calls, user])), 400); // another message first
    assert_eq!(ask(json!([user, calls, result("b")])), 400); // another call's
    assert_eq!(ask(json!([user, calls, result("a"), result("a")])), 400); // twice
    assert_eq!(ask(json!([])), 400);
    assert_eq!(program.send("POST", "/script/answers", &json!({"fault": "unheard_of"})).0, 400);
    assert_eq!(program.send("GET", "/script", &Value::Null).1["request_count"], 6); // SM2
}
