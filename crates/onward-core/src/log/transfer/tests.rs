//! Tests of the parent module.

use super::*;
use crate::log::event::RunStarted;
use crate::{Index, Name, Namespace, Payload, RunId, Timestamp};

fn run(id: &str, payload: Payload) -> ExportedRun {
    let key = RunKey::new(Namespace::default(), RunId::new(id).unwrap());
    let started = RunStarted::new(Name::new("k").unwrap(), payload, 7);
    ExportedRun { key, logs: vec![vec![Record::input(Index(0), Timestamp(1), started.into())]], flows: Vec::new() }
}

fn flow(name: &str, version: &str) -> Arc<ExportedFlow> {
    let name = FlowRef { flow: Name::new(name).unwrap(), version: Name::new(version).unwrap() };
    Arc::new(ExportedFlow { name, document: format!("flow: x # {version}\n\"quoted\"\n") })
}

#[test]
fn runs_read_back_and_their_text_is_the_same() {
    let bytes = Payload::binary("application/octet-stream", vec![0u8, 255, 10]);
    let runs = [run("a", Payload::from_json_text("{\"b\": 1.0,  \"a\":9007199254740993}".to_owned())), run("b", bytes)];
    let text = write(&runs);
    let read = read(&text).unwrap();
    assert_eq!(read, runs);
    assert_eq!(write(&read), text);
}

/// U8
#[test]
fn a_definition_stands_once_and_before_the_runs_that_need_it() {
    let (one, two) = (flow("greet", "1"), flow("greet", "2"));
    let with = |id: &str, flows: &[&Arc<ExportedFlow>]| ExportedRun {
        flows: flows.iter().map(|flow| (*flow).clone()).collect(),
        ..run(id, Payload::null())
    };
    let runs = [with("a", &[&one]), with("b", &[]), with("c", &[&one, &two])];
    let text = write(&runs);
    assert_eq!(text.matches("\"document\"").count(), 2);
    assert_eq!(read(&text).unwrap(), runs);
    assert_eq!(write(&read(&text).unwrap()), text);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let (definition, first) = (lines[1], &lines[..4].concat());
    let end = footer(1, None);
    for (text, why) in [
        (text.replace(definition, ""), "version 1 of flow `greet` is not defined before the run"),
        (text.replace(definition, &definition.repeat(2)), "version 1 of flow `greet` is defined twice"),
        (first.clone() + &definition.replace("\"1\"", "\"9\"") + &end, "no run needs version 9 of flow `greet`"),
        (text.replace("\"flows\":[{", "\"flows\":[{\"more\":1,"), "unknown field"),
        (text.replace("\"flow\":\"greet\",\"version\":\"1\",", "\"flow\":\"greet\","), "neither a run"),
        (text.replace("\"flow\":\"greet\",\"version\":\"1\",", "\"flow\":\"\",\"version\":\"1\","), "line 2"),
    ] {
        let error = read(&text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}: {text}");
    }
}

#[test]
fn a_file_that_was_cut_is_refused_wherever_it_was_cut() {
    let mut long = run("a", Payload::null());
    let paused = |index| {
        Record::input(Index(index), Timestamp(2), crate::log::event::TimerFired { call_id: crate::CallId::root(0) }.into())
    };
    long.logs[0].extend([paused(1), paused(2)]);
    let text = write(&[long, run("b", Payload::null())]);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    assert_eq!(read(&text).unwrap().len(), 2);
    for cut in 0..lines.len() {
        let (whole, half) = (lines[..cut].concat(), &lines[cut][..lines[cut].len() / 2]);
        assert!(read(&whole).is_err(), "{whole}");
        assert!(read(&(whole + half)).is_err(), "{half}");
        let without: String = lines.iter().enumerate().filter(|(at, _)| *at != cut).map(|(_, line)| *line).collect();
        assert!(read(&without).is_err(), "{without}");
    }
    let error = read(&lines[..4].concat()).unwrap_err();
    assert_eq!(error.to_string(), "line 4: run a is incomplete: expected 3 records, found 2");
}

#[test]
fn a_run_that_was_left_out_is_named_and_no_run() {
    let left = LeftOut { key: run("x", Payload::null()).key, code: "store_corrupt".to_owned() };
    let text = header() + &run("a", Payload::null()).to_lines() + &left.to_line() + &footer(1, None);
    let mut importer = Importer::default();
    let runs: Vec<ExportedRun> = text.lines().filter_map(|line| importer.take(line).unwrap()).collect();
    importer.finish().unwrap();
    assert_eq!((runs.len(), importer.left_out()), (1, &[left][..]));
}

#[test]
fn a_page_of_several_names_the_start_of_the_next_one() {
    let lines = header() + &run("a", Payload::null()).to_lines();
    let next = |footer: &str| {
        let mut importer = Importer::default();
        let runs = (lines.clone() + footer).lines().filter_map(|line| importer.take(line).unwrap()).count();
        importer.finish().unwrap();
        (runs, importer.next().map(str::to_owned))
    };
    assert_eq!(next(&footer(1, Some("c\"1"))), (1, Some("c\"1".to_owned())));
    assert_eq!(footer(1, None), "{\"runs\":1}\n");
    assert_eq!(next(&footer(1, None)), (1, None));
}

#[test]
fn huge_numbers_are_refused() {
    let text = write(&[run("a", Payload::null())]);
    let huge = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        read(&text.replace(from, to))
    };
    let max = u64::MAX;
    assert_eq!(huge("\"records\":[1]", &format!("\"records\":[{max},{max}]")).unwrap_err().line, 4);
    assert_eq!(huge("\"generation\":0,\"record\"", &format!("\"generation\":{max},\"record\"")).unwrap_err().line, 3);
    assert_eq!(huge("1970-", "9999999999999999-").unwrap_err().line, 3);
    assert_eq!(huge("1970-01-", &format!("1970-{max}-")).unwrap_err().line, 3);
    assert_eq!(huge("{\"runs\":1}", &format!("{{\"runs\":{max}}}")).unwrap_err().line, 4);
}

#[test]
fn lines_that_are_no_runs_are_refused_by_their_number() {
    let lines = write(&[run("a", Payload::null())]);
    let cut: String = lines.lines().take(2).map(|line| format!("{line}\n")).collect();
    let later = lines.replace("\"onward_export\":1", "\"onward_export\":2");
    for (text, line) in [("", 0), ("{}", 1), ("nonsense", 1), (cut.as_str(), 2), (later.as_str(), 1)] {
        assert_eq!(read(text).unwrap_err().line, line, "{text}");
    }
    let headless: String = lines.lines().skip(1).map(|line| format!("{line}\n")).collect();
    assert_eq!(read(&headless).unwrap_err().line, 1);
}
