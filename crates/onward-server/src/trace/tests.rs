use super::*;

#[test]
fn a_line_stays_one_line_whatever_its_content() {
    let evil = "a\u{1b}[31m\nb\u{202e}";
    let line = pretty(Level::Info, "request", &[("run", &evil)]);
    assert!(line.ends_with(" info  request run=a\\u{1b}[31m\\nb\\u{202e}\n"), "{line:?}");
    let line = json(Level::Error, "request", &[("run", &evil)]);
    assert_eq!(line.matches('\n').count(), 1);
    assert!(!line.contains(['\u{1b}', '\u{202e}']));
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["run"], evil);
}

/// Writer that blocks until the sender is dropped.
struct Stuck(Receiver<()>, Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.recv(); // waits; later the sender is gone
        self.1.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// TR1.
#[test]
fn a_slow_reader_delays_no_writer_and_learns_what_it_missed() {
    let ((go, stuck), written) = (channel(), Arc::default());
    let trace = Trace::to(Format::Json, Level::Info, Box::new(Stuck(stuck, Arc::clone(&written))));
    for number in 0..2 * LINES_MAX {
        trace.log(Level::Info, "x", &[("number", &number)]);
    }
    drop(go);
    drop(trace);
    let written = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lost: u64 = lines.iter().filter_map(|line| line["lines"].as_str()).map(|lines| lines.parse::<u64>().unwrap()).sum();
    let lost_line = lines.iter().filter(|line| line["message"] == "x").count();
    assert!(lost > 0 && lost_line >= LINES_MAX, "{lost} lost, {lost_line} written");
    assert_eq!(lost_line + lost as usize, 2 * LINES_MAX, "every line is written or counted");
}

#[test]
fn a_long_value_is_cut() {
    assert!(pretty(Level::Info, "x", &[("run", &"y".repeat(10_000))]).len() < 400);
}
