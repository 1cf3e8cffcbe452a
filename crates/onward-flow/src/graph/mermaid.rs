//! The graph as Mermaid text, for pages that render it.

use std::fmt::Write;

use super::text::first_chars;
use super::{Edge, EdgeKind, Graph, GraphNode, NodeKind};

/// The longest line of a node and the longest label of an edge, in characters.
const LINE_MAX: usize = 48;
const LABEL_MAX: usize = 32;

const STYLES: &str = "\
    classDef model fill:#f3e8ff,stroke:#8250df,color:#24292f
    classDef work fill:#ddf4ff,stroke:#0969da,color:#24292f
    classDef person fill:#fff8c5,stroke:#9a6700,color:#24292f
    classDef time fill:#dafbe1,stroke:#1a7f37,color:#24292f
    classDef control fill:#f6f8fa,stroke:#6e7781,color:#24292f
    classDef unknown fill:#ffebe9,stroke:#cf222e,color:#24292f
";

/// Returns the graph as a Mermaid flowchart.
pub fn mermaid(graph: &Graph) -> String {
    let mut out = "flowchart TD\n".to_owned();
    for (index, node) in graph.nodes.iter().enumerate() {
        push_node(&mut out, index, node);
    }
    for edge in &graph.edges {
        push_edge(&mut out, edge);
    }
    out.push_str(STYLES);
    out
}

fn push_node(out: &mut String, index: usize, node: &GraphNode) {
    let mut label = String::new();
    push_label(&mut label, &node.name, LINE_MAX);
    let second = match (node.kind, &node.detail) {
        (NodeKind::Start, detail) => detail.clone(),
        (NodeKind::End, _) => None,
        (kind, Some(detail)) => Some(format!("{}: {detail}", kind.as_str())),
        (kind, None) => Some(kind.as_str().to_owned()),
    };
    let badges = node.badges.iter().map(|badge| badge.text.as_str()).collect::<Vec<_>>().join(", ");
    for line in second.iter().map(String::as_str).chain(Some(badges.as_str()).filter(|badges| !badges.is_empty())) {
        label.push_str("<br/>");
        push_label(&mut label, line, LINE_MAX);
    }
    let (open, close, class) = match node.kind {
        NodeKind::Start | NodeKind::End => ("([", "])", "control"),
        NodeKind::Prompt | NodeKind::Agent => ("[", "]", "model"),
        NodeKind::Task | NodeKind::Action | NodeKind::Child => ("[", "]", "work"),
        NodeKind::Approval => ("[/", "/]", "person"),
        NodeKind::Wait | NodeKind::Sleep => ("(", ")", "time"),
        NodeKind::Switch => ("{", "}", "control"),
        NodeKind::Parallel | NodeKind::Join => ("[[", "]]", "control"),
        NodeKind::Set => ("[", "]", "control"),
        NodeKind::Unknown => ("[", "]", "unknown"),
    };
    // A name may be anything, so nodes go by their number.
    writeln!(out, "    n{index}{open}\"{label}\"{close}:::{class}").expect("writing to a text cannot fail");
}

fn push_edge(out: &mut String, Edge { from, to, kind, label }: &Edge) {
    let arrow = match kind {
        EdgeKind::Catch | EdgeKind::Skip => "-.->",
        EdgeKind::Branch | EdgeKind::Join => "==>",
        EdgeKind::Next => "-->",
    };
    write!(out, "    n{from} {arrow}").expect("writing to a text cannot fail");
    if let Some(label) = label.as_deref().filter(|label| !label.is_empty()) {
        out.push_str("|\"");
        push_label(out, label, LABEL_MAX);
        out.push_str("\"|");
    }
    writeln!(out, " n{to}").expect("writing to a text cannot fail");
}

/// Appends a text in quotes. Everything that Markdown, HTML or Mermaid could read as more than text becomes a numeric entity.
fn push_label(out: &mut String, text: &str, max: usize) {
    let text = first_chars(text, max);
    if text.is_empty() {
        out.push_str("#8203;"); // Mermaid refuses empty labels
    }
    // At the start of a line, `1.` and `-` would be a list.
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    for (at, c) in text.char_indices() {
        let may_begin_list = at == digits && (at > 0 || c == '-');
        let is_plain = c.is_alphanumeric() || !c.is_ascii() || matches!(c, ' ' | ',' | ':' | '/' | '=' | '?' | '(' | ')');
        if is_plain || (matches!(c, '.' | '-') && !may_begin_list) {
            out.push(c);
        } else {
            write!(out, "#{};", c as u32).expect("writing to a text cannot fail");
        }
    }
}
