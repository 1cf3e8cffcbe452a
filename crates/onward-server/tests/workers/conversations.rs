//! Recorded conversations: the server's frames in reply to a worker in any language.
//!
//! Each line of a file is a frame with its direction, `up` or `down`, or an action in between, `do`. The `up` and `do` lines are
//! written by hand; `ONWARD_WRITE=1` records the replies. A change in a recorded file is a change of the protocol.

use std::path::{Path, PathBuf};
use std::time::Duration;

use onward_core::Payload;
use onward_wire::worker::{ServerFrame, WorkerFrame};
use serde::{Deserialize, Serialize};

use crate::raw::{Raw, Site};

/// Time without a frame after which a recording continues.
const QUIET: Duration = Duration::from_millis(150);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Up(Box<WorkerFrame>),
    Down(Box<ServerFrame>),
    Do(Act),
}

/// Action between frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    Start {
        run: String,
        kind: String,
    },
    Signal {
        run: String,
        name: String,
    },
    Terminate {
        run: String,
    },
    /// The connection is lost; the next `up` opens another.
    Cut,
    /// The server ends the connection.
    Ended,
    PassMs(u64),
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../onward-wire/tests/conversations")
}

/// Returns the lines of a recorded conversation.
pub fn lines_of(name: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(folder().join(name)).unwrap();
    let read = |(number, line): (usize, &str)| -> Line {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}:{}: {error}", number + 1))
    };
    text.lines().enumerate().map(read).collect()
}

struct Talk {
    site: Site,
    raw: Option<Raw>,
}

impl Talk {
    async fn act(&mut self, line: &Line) {
        match line {
            Line::Up(frame) => match &self.raw {
                Some(raw) => raw.send((**frame).clone()).await,
                None => self.raw = Some(self.site.connect(vec![(**frame).clone()]).await.unwrap()),
            },
            Line::Do(Act::Start { run, kind }) => self.site.start(run, kind).await,
            Line::Do(Act::Signal { run, name }) => self.site.signal(run, name, Payload::null()).await,
            Line::Do(Act::Terminate { run }) => self.site.terminate(run).await,
            Line::Do(Act::Cut) => self.raw = None,
            Line::Do(Act::Ended) => {
                let mut raw = self.raw.take().expect("there is a connection");
                assert_eq!(raw.next().await, None, "the server ends it");
            }
            Line::Do(Act::PassMs(span)) => self.site.pass(Duration::from_millis(*span)).await,
            Line::Down(_) => unreachable!("only the server sends that"),
        }
    }
}

#[tokio::test]
async fn a_server_answers_as_it_was_recorded() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let lines = lines_of(&name);
        if std::env::var_os("ONWARD_WRITE").is_some() {
            record(&file, lines).await;
        } else {
            replay(&name, lines).await;
        }
    }
}

async fn replay(name: &str, lines: Vec<Line>) {
    let mut talk = Talk { site: Site::new().await, raw: None };
    for (number, line) in lines.iter().enumerate() {
        match line {
            Line::Down(expected) => {
                let raw = talk.raw.as_mut().expect("there is a connection");
                assert_eq!(raw.next().await.map(steady).as_ref(), Some(&**expected), "{name}:{}", number + 1);
            }
            act => talk.act(act).await,
        }
    }
}

/// Removes what differs from session to session.
pub fn steady(mut frame: ServerFrame) -> ServerFrame {
    if let ServerFrame::Welcome(welcome) = &mut frame {
        welcome.session = 0;
    }
    frame
}

async fn record(file: &Path, lines: Vec<Line>) {
    let mut talk = Talk { site: Site::new().await, raw: None };
    let mut text = String::new();
    let mut keep = |line: &Line| text += &(serde_json::to_string(line).unwrap() + "\n");
    for line in lines.iter().filter(|line| !matches!(line, Line::Down(_))) {
        talk.act(line).await;
        keep(line);
        while let Some(raw) = &mut talk.raw
            && let Some(frame) = raw.next_within(QUIET).await
        {
            keep(&Line::Down(Box::new(steady(frame))));
        }
    }
    std::fs::write(file, text).unwrap();
}
