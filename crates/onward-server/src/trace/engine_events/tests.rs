use std::sync::Mutex;

use super::*;
use crate::trace::Format;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn warnings_of_the_engine_become_lines_and_others_do_not() {
    let written = Written::default();
    let trace = Trace::to(Format::Json, Level::Info, Box::new(written.clone()));
    tracing::subscriber::with_default(EngineEvents::new(trace.to.as_ref().unwrap()), || {
        tracing::warn!(model = "small", attempt = 2, next = None::<u64>, run = %"r", "a call {}", "failed");
        tracing::debug!("too much");
        tracing::warn!(target: "hyper::client", "not ours");
    });
    drop(trace);
    let lines = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let line: serde_json::Value = serde_json::from_str(&lines).unwrap(); // one line
    assert_eq!((&line["level"], &line["message"]), (&"warn".into(), &"a call failed".into()));
    assert_eq!((&line["model"], &line["attempt"], &line["run"]), (&"small".into(), &"2".into(), &"r".into()));
}
