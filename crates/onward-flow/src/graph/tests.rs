use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::layout::{Area, Course, Layout};
use super::svg::measured;
use super::*;
use crate::document::Flow;
use crate::machine::{Progress, ProgressState};

fn graph(steps: Value) -> Graph {
    let flow: Flow = serde_json::from_value(json!({"flow": "test", "steps": steps})).unwrap();
    Graph::of(&flow)
}

/// Returns the edges as `from -> to [kind label]`.
fn edges(graph: &Graph) -> Vec<String> {
    let name = |at: usize| if graph.nodes[at].kind == NodeKind::Start { "(start)" } else { graph.nodes[at].name.as_str() };
    let text = |edge: &Edge| {
        let label = edge.label.as_ref().map(|label| format!(" {label}")).unwrap_or_default();
        format!("{} -> {} [{:?}{label}]", name(edge.from), name(edge.to), edge.kind)
    };
    graph.edges.iter().map(text).collect()
}

fn research() -> Flow {
    let text = std::fs::read_to_string(root().join("examples/flows/research.yaml")).unwrap();
    let parsed = crate::document::parse(&text, "research.yaml");
    parsed.flow.unwrap_or_else(|| panic!("{:?}", parsed.problems))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Checks that nothing covers anything and that all lines begin and end at their boxes.
#[track_caller]
fn assert_neat(graph: &Graph) -> Layout {
    let layout = measured(graph);
    let mut areas: Vec<&Area> = layout.boxes.iter().chain(layout.labels.iter().flatten()).collect();
    areas.sort_by(|a, b| a.top.total_cmp(&b.top));
    for (at, upper) in areas.iter().enumerate() {
        for lower in areas[at + 1..].iter().take_while(|lower| lower.top < upper.bottom()) {
            assert!(upper.right() <= lower.left() || lower.right() <= upper.left(), "{upper:?} and {lower:?} overlap");
        }
    }
    for area in &areas {
        assert!(area.left() >= 0.0 && area.top >= 0.0, "{area:?} is outside");
        assert!(area.right() <= layout.width && area.bottom() <= layout.height, "{area:?} is outside");
    }
    for (edge, course) in graph.edges.iter().zip(&layout.courses) {
        let (first, last) = match course {
            Course::Through(pieces) => ((pieces[0].0, pieces[0].1), (pieces[pieces.len() - 1].0, pieces[pieces.len() - 1].2)),
            Course::Beside(corners) => (corners[0], corners[corners.len() - 1]),
        };
        let (from, to) = (&layout.boxes[edge.from], &layout.boxes[edge.to]);
        assert!(first.0 > from.left() && first.0 < from.right() && first.1 == from.bottom(), "{edge:?} begins at {first:?}");
        assert!(last.0 > to.left() && last.0 < to.right() && last.1 == to.top, "{edge:?} ends at {last:?}");
        let pieces: Vec<(f64, f64, f64)> = match course {
            Course::Through(pieces) => pieces.clone(),
            Course::Beside(corners) => corners
                .windows(2)
                .filter(|two| two[0].0 == two[1].0)
                .map(|two| (two[0].0, two[0].1.min(two[1].1), two[0].1.max(two[1].1)))
                .collect(),
        };
        for area in &layout.boxes {
            let covers = |(x, top, bottom): &(f64, f64, f64)| {
                *x > area.left() && *x < area.right() && *bottom > area.top && *top < area.bottom()
            };
            assert!(!pieces.iter().any(covers), "{edge:?} runs through {area:?}");
        }
    }
    layout
}

#[test]
fn edges_follow_next_catch_and_the_order_of_the_steps() {
    let graph = Graph::of(&research());
    assert_eq!(
        edges(&graph),
        [
            "(start) -> plan [Next]",
            "plan -> search [Next]",
            "search -> write [Next]",
            "search -> apologize [Catch timeout]",
            "write -> shorten [Next state.page | length > 20000]",
            "write -> review [Next else]",
            "shorten -> review [Next]",
            "review -> end [Next result.approved]",
            "review -> apologize [Next else]",
            "apologize -> end [Next]",
        ]
    );
    assert_neat(&graph);
}

#[test]
fn branches_lead_to_the_join_that_waits_for_them() {
    let graph = graph(json!([
        {"name": "both", "parallel": {
            "left": [{"name": "a", "task": "t"}, {"name": "b", "task": "t", "next": "end"}],
            "right": [{"name": "c", "task": "t", "when": "inputs.x"}],
            "none": [],
        }},
        {"name": "meanwhile", "task": "t"},
        {"name": "first", "join": {"branches": ["left"]}},
        {"name": "rest", "join": {}},
    ]));
    assert_eq!(
        edges(&graph),
        [
            "(start) -> both [Next]",
            "both -> a [Branch left]",
            "a -> b [Next]",
            "b -> first [Join]",
            "both -> rest [Branch none]",
            "both -> c [Branch right]",
            "c -> rest [Join]",
            "both -> meanwhile [Next]",
            "meanwhile -> first [Next]",
            "first -> rest [Next]",
            "rest -> end [Next]",
        ]
    );
    assert_neat(&graph);
}

#[test]
fn forks_switches_and_skipped_steps_are_edges() {
    let graph = graph(json!([
        {"name": "fork", "set": {}, "next": {"all": [{"goto": "x", "branch": "one"}, {"goto": "y", "when": "{{ inputs.y }}"}]}},
        {"name": "x", "set": {}, "when": "inputs.x", "next": "z"},
        {"name": "y", "switch": {"on": "state.a", "cases": {"p": "x", "q": "x", "r": "end"}}},
        {"name": "z", "join": {}, "next": [{"goto": "nowhere", "when": "1"}]},
    ]));
    assert_eq!(
        edges(&graph),
        [
            "(start) -> fork [Next]",
            "fork -> x [Branch one]",
            "fork -> y [Branch inputs.y]",
            "x -> z [Next]",
            "x -> y [Skip skipped]",
            "y -> x [Next p, q]",
            "y -> end [Next r]",
            "y -> z [Next else]",
            "z -> nowhere [Next 1]",
            "z -> end [Next else]",
        ]
    );
    assert_eq!(graph.nodes.last().unwrap().kind, NodeKind::Unknown);
    assert_neat(&graph);
}

#[test]
fn loops_run_beside_the_layers() {
    let graph = graph(json!([
        {"name": "ask", "prompt": "?"},
        {"name": "check", "approval": "?", "next": [{"when": "result.approved", "goto": "end"}, {"goto": "ask"}]},
        {"name": "self", "sleep": "1s", "next": "self"},
    ]));
    let layout = assert_neat(&graph);
    let beside = |from: &str, to: &str| {
        let edge = graph.edges.iter().position(|edge| graph.nodes[edge.from].name == from && graph.nodes[edge.to].name == to);
        matches!(layout.courses[edge.unwrap()], Course::Beside(_))
    };
    assert!(beside("check", "ask") && beside("self", "self") && !beside("ask", "check"));
}

/// Names of documents are data: they cannot end an attribute, open an element, or turn around what follows.
#[test]
fn hostile_names_are_shortened_and_escaped() {
    let long = "x".repeat(10_000);
    let names = [
        "</text><script>alert(1)</script>",
        "\" onload=\"alert(1)",
        "]]> --> <!-- &amp; &#60;",
        "a\u{0}\u{1b}[31m\u{7f}\u{fffe}\u{ffff}b",
        "\u{202e}drow\u{2066} שלום עולם مرحبا بالعالم",
        "👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦",
        "﷽﷽﷽﷽﷽﷽﷽﷽﷽﷽",
        "1. `#quot;` \"]:::x; end\n  n0 --> n1",
        "",
        &long,
    ];
    let steps: Vec<Value> = names
        .iter()
        .map(|name| {
            json!({"name": name, "prompt": name, "model": name, "when": name, "next": [{"when": name, "goto": name}],
            "catch": [{"on": name, "goto": "end"}]})
        })
        .collect();
    let mut flow: Flow = serde_json::from_value(json!({"flow": names[0], "description": names[1], "steps": steps})).unwrap();
    flow.flow = names.concat();
    let graph = Graph::of(&flow);
    assert_neat(&graph);
    let svg = svg(&graph, None);
    assert!(svg.len() < 120_000, "{}", svg.len());
    assert_well_formed(&svg);
    for bad in ["<script", "onload=\"", "<!--", "\u{202e}", "\u{2066}", "\u{0}", "\u{1b}", "\u{fffe}", "\u{ffff}"] {
        assert!(!svg.contains(bad), "{bad:?}");
    }
    let text = mermaid(&graph);
    assert!(text.lines().all(|line| line.len() < 1_000 && line.matches('"').count() % 2 == 0), "{text}");
    assert!(!text.contains("<script") && !text.contains("`"), "{text}");
}

/// Reads elements and attributes as XML has them.
#[track_caller]
fn assert_well_formed(text: &str) {
    let mut open = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        assert!(!before.contains('>') || open.last() == Some(&"style"), "{before}");
        let (tag, after) = after.split_once('>').unwrap();
        assert!(tag.matches('"').count() % 2 == 0 && !tag.contains('\n'), "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
        rest = after;
    }
    assert!(open.is_empty(), "{open:?}");
}

/// Steps with several ways each, many of them far, and half of them back.
#[test]
fn a_thousand_steps_take_less_than_a_second() {
    let name = |at: usize| format!("step-{}", at % 1_000);
    let steps: Vec<Value> = (0..1_000)
        .map(|at| {
            json!({"name": name(at), "task": "t", "catch": [{"goto": "step-999"}], "next": [
                {"when": "a", "goto": name(at * 7 + 3)}, {"when": "b", "goto": name(at + 400)}]})
        })
        .collect();
    let graph = graph(json!(steps));
    let start = std::time::Instant::now();
    let svg = svg(&graph, None);
    let took = start.elapsed();
    assert!(svg.len() < 4_000_000, "{}", svg.len());
    assert!(took.as_millis() < 1_000, "{took:?}");
    assert_neat(&graph);
    let wide: Vec<Value> = (0..1_000).map(|at| json!([{"name": format!("in-{at}"), "task": "t"}])).collect();
    let branches: Value =
        wide.into_iter().enumerate().map(|(at, steps)| (format!("b{at}"), steps)).collect::<serde_json::Map<_, _>>().into();
    let start = std::time::Instant::now();
    let graph = self::graph(json!([{"name": "all", "parallel": branches}, {"name": "join", "join": {}}]));
    assert_neat(&graph);
    assert!(start.elapsed().as_millis() < 2_000, "{:?}", start.elapsed());
}

fn progress(step: &str, state: ProgressState, next: &[&str]) -> Progress {
    let next = next.iter().map(|next| (*next).to_owned()).collect();
    Progress { step: step.to_owned(), state, times: 1, done: None, of: None, next }
}

#[test]
fn progress_shows_states_counts_and_taken_edges() {
    let graph = Graph::of(&research());
    let mut taken = Taken::default();
    taken.add(progress("plan", ProgressState::Done, &["search"]));
    taken.add(Progress { done: Some(3), of: Some(8), times: 2, ..progress("search", ProgressState::Running, &[]) });
    let text = svg(&graph, Some(&taken));
    assert_well_formed(&text);
    let node = |name: &str| {
        let end = text.find(&format!("data-step=\"{name}\"")).unwrap();
        let start = text[..end].rfind("<g class=\"").unwrap();
        text[start + 10..].split('"').next().unwrap().to_owned()
    };
    assert_eq!([node("plan"), node("search"), node("write")], ["node model done", "node work running", "node model open"]);
    assert!(text.contains(">3/8<") && text.contains(">2×<"), "{text}");
    let edges: Vec<bool> = graph.edges.iter().map(|edge| taken.has_taken(&graph, edge)).collect();
    assert_eq!(edges, [true, true, false, false, false, false, false, false, false, false]);
    taken.add(progress("search", ProgressState::Failed, &["apologize"]));
    taken.add(progress("apologize", ProgressState::Done, &["end"]));
    taken.is_completed = true;
    let edges: Vec<bool> = graph.edges.iter().map(|edge| taken.has_taken(&graph, edge)).collect();
    assert_eq!(edges, [true, true, false, true, false, false, false, false, false, true]);
}

/// The pictures of the example. `ONWARD_WRITE=1` writes them.
#[test]
fn the_pictures_of_the_example_are_as_recorded() {
    let graph = Graph::of(&research());
    for (file, text) in [("research.svg", svg(&graph, None)), ("research.mmd", mermaid(&graph))] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graph").join(file);
        if std::env::var_os("ONWARD_WRITE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let recorded = std::fs::read_to_string(&path).unwrap();
        assert!(recorded == text, "{file} differs: look at it, then ONWARD_WRITE=1 cargo test -p onward-flow graph");
    }
}
