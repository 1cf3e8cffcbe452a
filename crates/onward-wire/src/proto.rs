//! The `.proto` file of all messages, generated from the definitions.
//!
//! A test compares `proto/onward.proto` with this text, compiles it, and reads real bytes with it.

use onward_core::codec::Field;
use onward_core::schema::{Schema, documentation};

use crate::Problem;
use crate::ends::{AwaitFrame, EndsFrame};
use crate::worker::{ServerFrames, WorkerFrames};

/// One method of a service.
struct MethodLine {
    name: &'static str,
    docs: &'static [&'static str],
    request: String,
    reply: String,
}

macro_rules! methods {
    ($($(#[$meta:meta])* $method:ident $name:ident($request:ident) -> $reply:ident, $scope:ident;)*) => {
        /// Returns the methods of the verbs and adds their messages to `schema`.
        #[inline]
        fn methods(schema: &mut Schema) -> Vec<MethodLine> {
            vec![$(MethodLine {
                name: stringify!($name),
                docs: &[$(stringify!($meta)),*],
                request: onward_core::api::$request::proto(schema).name().to_owned(),
                reply: onward_core::api::$reply::proto(schema).name().to_owned(),
            },)*]
        }
    };
}

onward_core::with_verbs!(methods);

const HEAD: &str = "\
// Printed by `cargo xtask gen` from crates/onward-wire; do not edit.
//
// The log, the worker protocol and the API use the same messages. Times are milliseconds since 1970. A message `Each…`
// holds one element of a list of lists.
syntax = \"proto3\";

package onward.v1;
";

/// Returns the whole file. Inline, so that only the tests that call it have its code.
#[inline]
pub fn text() -> String {
    let mut schema = Schema::default();
    let emitted = onward_core::api::Emitted::proto(&mut schema);
    let (awaited, ends) = (AwaitFrame::proto(&mut schema), EndsFrame::proto(&mut schema));
    let watch = onward_core::api::WatchRequest::proto(&mut schema);
    let frame = onward_core::live::LiveFrame::proto(&mut schema);
    let streams = format!(
        "  // Streams what a run emits from now on; not recorded.\n  rpc ListenRun(RunRequest) returns (stream {});\n  \
         // Streams the log of a run, and what is under way and not in the log.\n  rpc WatchRun({}) returns (stream {});\n  \
         // Streams the outcomes of many runs, in the order of their ends.\n  rpc AwaitEnds(stream {}) returns (stream {});\n",
        emitted.name(),
        watch.name(),
        frame.name(),
        awaited.name(),
        ends.name()
    );
    let runs = service("Runs", "The API.", &methods(&mut schema), &streams);
    let (up, down) = (WorkerFrames::proto(&mut schema), ServerFrames::proto(&mut schema));
    let workers = format!(
        "// One stream per worker: runs and tasks down, commits and results up; docs/protocol.md has the rules.\n\
         service Workers {{\n  rpc Connect(stream {}) returns (stream {});\n}}\n",
        up.name(),
        down.name()
    );
    // The details of a gRPC status carry errors.
    Problem::proto(&mut schema);
    format!("{HEAD}\n{runs}\n{workers}\n{}", schema.text())
}

fn service(name: &str, what: &str, methods: &[MethodLine], streams: &str) -> String {
    let mut text = format!("// {what}\nservice {name} {{\n");
    for MethodLine { name, docs, request, reply } in methods {
        for line in docs.iter().filter_map(|doc| documentation(doc)) {
            text += &format!("  // {line}\n");
        }
        text += &format!("  rpc {name}({request}) returns ({reply});\n");
    }
    text + streams + "}\n"
}
