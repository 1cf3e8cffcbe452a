//! A table of documents with all their problems.

use super::*;

/// The documents of `problems.txt` are separated by lines of `=`; below the line of `-` are all problems of each.
/// `ONWARD_WRITE=1` writes the problems; read the difference. Problems of one step hide none of another (FY2).
#[test]
fn each_document_has_exactly_these_problems() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/document/tests/problems.txt");
    let (committed, mut now) = (include_str!("problems.txt"), String::new());
    for case in committed.split_inclusive("=====\n") {
        let case = case.trim_end_matches("=====\n");
        let document = case.split("-----\n").next().unwrap_or_default();
        now.push_str(document);
        now.push_str("-----\n");
        problems(document).iter().for_each(|problem| now.push_str(&format!("{problem}\n")));
        now.push_str("=====\n");
    }
    if std::env::var_os("ONWARD_WRITE").is_some() {
        std::fs::write(path, &now).expect("write the problems");
        return;
    }
    for (wanted, found) in committed.split("=====\n").zip(now.split("=====\n")) {
        assert_eq!(found, wanted);
    }
}

#[test]
fn the_example_has_no_problems() {
    assert_eq!(found(EXAMPLE), Vec::<String>::new());
    let flow = parse(EXAMPLE, "research.yaml").flow.expect("a flow");
    assert_eq!((flow.flow.as_str(), flow.steps.len()), ("research", 6));
    let value = serde_json::to_value(&flow).expect("JSON");
    assert_eq!(parse(&value.to_string(), "research.json").flow.as_ref(), Some(&flow));
    assert_eq!(serde_json::from_value::<Flow>(value).expect("a flow"), flow);
}

#[test]
fn problems_name_the_path_the_step_and_the_hint() {
    let text = EXAMPLE.replace("goto: shorten }", "goto: shortn }");
    let problems = problems(&text);
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!((problem.path.as_str(), problem.step.as_deref()), ("steps[2].next[0].goto", Some("write")));
    assert_eq!(problem.hint.as_deref(), Some("did you mean `shorten`?"));
    assert_eq!(problem.to_string(), "flow.yaml:26:54: error[unknown_step]: there is no step `shortn`; did you mean `shorten`?");
    let parsed = parse(&text, "flow.yaml");
    assert_eq!(parsed.positions.at(&problem.path), Some(SourcePosition { line: 26, column: 54 }));
    assert_eq!(parsed.positions.step("review"), Some(SourcePosition { line: 33, column: 5 }));
}

#[test]
fn names_that_no_worker_serves_are_warnings() {
    let known = Known {
        tasks: Some(vec!["web_search".to_owned()]),
        kinds: Some(Vec::new()),
        models: Some(vec!["small".to_owned()]),
        agents: Some(Vec::new()),
    };
    let texts: Vec<String> = check(&parse(EXAMPLE, "f"), &known).iter().map(ToString::to_string).collect();
    let wanted = [
        "f:14:11: warning[unknown_task]: no worker serves the task `web-search` now; did you mean `web_search`?",
        "f:22:12: warning[unknown_agent]: no worker serves the agent `writer` now",
    ];
    assert_eq!(texts, wanted);
}

#[test]
fn the_nearest_value_of_a_path_has_a_position_and_a_step() {
    let text = "flow: f\nsteps:\n  - name: p\n    parallel:\n      x:\n        - name: deep\n          set: { x: 1 }\n";
    let parsed = parse(text, "flow.yaml");
    let nearest = |path: &str| {
        let (SourcePosition { line, column }, step) = parsed.positions.nearest(path);
        (line, column, step)
    };
    assert_eq!(nearest("steps[0].parallel.x[0].set.y"), (7, 16, Some("deep")));
    assert_eq!(nearest("steps[0].next[3].goto"), (3, 5, Some("p")));
    assert_eq!(nearest("steps"), (3, 3, None));
    assert_eq!(nearest("output"), (1, 1, None));
}

#[test]
fn a_lost_branch_is_named_at_its_place_and_an_unknown_step_makes_no_other_unreachable() {
    let parallel = "flow: f\nsteps:\n  - name: p\n    parallel:\n      one: [{ name: a, set: { x: 1 } }]\n      two: [{ name: b, set: { x: 1 } }]\n  - name: j\n    join: { branches: [one] }\n";
    assert_eq!(found(parallel), ["~6:7 branches_not_joined"]);
    let all = "flow: f\nsteps:\n  - name: a\n    set: { x: 1 }\n    next:\n      all:\n        - { goto: b }\n        - { goto: c, branch: other }\n  - name: b\n    set: { x: 1 }\n    next: j\n  - name: c\n    set: { x: 1 }\n    next: end\n  - name: j\n    join: { branches: [b] }\n";
    assert_eq!(found(all), ["~8:11 branches_not_joined"]);
    let unknown = "flow: f\nsteps:\n  - name: a\n    task: t\n    next: nowhere\n  - name: shorten\n    task: t\n";
    assert_eq!(found(unknown), ["5:11 unknown_step"]);
}
