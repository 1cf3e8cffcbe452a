//! HTTP client that sends exactly the bytes of a test, valid or not.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Checks that this is a well-formed problem with this code, and returns its detail.
    #[track_caller]
    pub fn problem(self, status: u16, code: &str) -> String {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.body);
        let problem = self.json();
        assert_eq!((&problem["code"], &problem["status"]), (&code.into(), &status.into()));
        assert_eq!(problem["type"], format!("urn:onward:error:{code}"));
        assert!(problem["title"].is_string() && problem.get("hint").is_some());
        problem["detail"].as_str().unwrap().to_owned()
    }
}

/// Sends bytes on a connection of their own and reads to its end. A server that stops reading is not an error.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (reader, mut writer) = stream.split();
    let write = async {
        drop(writer.write_all(bytes).await);
    };
    let read = async { read_reply(&mut BufReader::new(reader)).await };
    tokio::join!(write, read).1
}

async fn read_reply(reader: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Reply {
    let (status, headers) = read_head(reader).await;
    let mut body = Vec::new();
    drop(reader.read_to_end(&mut body).await);
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if chunked { dechunk(&body) } else { body };
    Reply { status, headers, body: String::from_utf8(body).unwrap() }
}

pub async fn read_head(reader: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> (u16, Vec<(String, String)>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).await.unwrap() > 0, "the connection ended before an answer: {lines:?}");
        if line == "\r\n" {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines[1..].iter().filter_map(|line| line.split_once(": ")).map(|(a, b)| (a.to_lowercase(), b.to_owned()));
    (status, headers.collect())
}

fn dechunk(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = body.windows(2).position(|pair| pair == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            break;
        }
        out.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 2 + size + 2..];
    }
    out
}

/// One event of a stream; a comment has only a comment.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Frame {
    pub id: Option<String>,
    pub event: Option<String>,
    pub data: Option<Value>,
    pub comment: Option<String>,
}

impl Frame {
    /// Returns the name of the logged event, or the type of the frame.
    pub fn name(&self) -> String {
        match (&self.event, &self.data) {
            (Some(event), _) => event.clone(),
            (None, Some(data)) => data["event"]["type"].as_str().unwrap().to_owned(),
            (None, None) => "comment".to_owned(),
        }
    }
}

/// A stream of events that is being read.
pub struct Stream {
    reader: BufReader<TcpStream>,
    text: String,
}

impl Stream {
    pub async fn open(address: SocketAddr, path: &str, headers: &str) -> Stream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut reader = BufReader::new(stream);
        let (status, headers) = read_head(&mut reader).await;
        assert_eq!(status, 200);
        assert!(headers.contains(&("content-type".to_owned(), "text/event-stream".to_owned())), "{headers:?}");
        Stream { reader, text: String::new() }
    }

    /// Returns the next event, or `None` at the end.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let (frame, rest) = (parse(frame), rest.to_owned());
                self.text = rest;
                return Some(frame);
            }
            let mut size = String::new();
            if self.reader.read_line(&mut size).await.ok()? == 0 {
                return None;
            }
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).await.ok()?;
            if size == 0 {
                return None;
            }
            self.text.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
        }
    }

    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// Returns everything up to the event of this name.
    pub async fn until(&mut self, name: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await.unwrap_or_else(|| panic!("the stream ended before {name}: {frames:?}"));
            frames.push(frame);
            if frames.last().unwrap().name() == name {
                return frames;
            }
        }
    }
}

fn parse(text: &str) -> Frame {
    let mut frame = Frame::default();
    for line in text.lines() {
        match line.split_once(": ").unwrap() {
            ("id", id) => frame.id = Some(id.to_owned()),
            ("event", event) => frame.event = Some(event.to_owned()),
            ("data", data) => frame.data = Some(serde_json::from_str(data).unwrap()),
            ("", comment) => frame.comment = Some(comment.to_owned()),
            other => panic!("unexpected line: {other:?}"),
        }
    }
    frame
}

pub fn names(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(Frame::name).collect()
}
