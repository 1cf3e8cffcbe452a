//! Draws the ways between steps.

use super::super::layout::Course;
use super::super::text::push_xml;
use super::{Edge, EdgeKind, Graph, number, put};

/// The height and half the width of the head of an arrow.
const HEAD: f64 = 8.0;
const HEAD_SIDE: f64 = 4.5;
/// The radius of corners.
const RADIUS: f64 = 10.0;

/// Draws an edge along its course. `taken` is whether the run has taken it, if a run is shown.
pub fn draw(out: &mut String, graph: &Graph, edge: &Edge, course: &Course, taken: Option<bool>) {
    let kind = match edge.kind {
        EdgeKind::Next => "next",
        EdgeKind::Skip => "skip",
        EdgeKind::Branch => "branch",
        EdgeKind::Join => "join",
        EdgeKind::Catch => "catch",
    };
    let state = match taken {
        None => "",
        Some(true) => " taken",
        Some(false) => " open",
    };
    put(out, format_args!("<g class=\"edge {kind}{state}\"><title>"));
    push_xml(out, &format!("{} → {}", graph.nodes[edge.from].name, graph.nodes[edge.to].name));
    if let Some(label) = &edge.label {
        push_xml(out, &format!(": {label}"));
    }
    out.push_str("</title><path d=\"");
    let (x, y) = match course {
        Course::Through(pieces) => push_curves(out, pieces),
        Course::Beside(corners) => push_corners(out, corners),
    };
    let (left, right, above) = (number(x - HEAD_SIDE), number(x + HEAD_SIDE), number(y - HEAD));
    put(out, format_args!("\"/><path class=\"head\" d=\"M{left} {above}L{right} {above}L{} {}Z\"/></g>\n", number(x), number(y)));
}

/// Appends vertical pieces with curves between them; returns the end.
fn push_curves(out: &mut String, pieces: &[(f64, f64, f64)]) -> (f64, f64) {
    let (mut x, mut y) = (0.0, 0.0);
    for (at, (next, top, bottom)) in pieces.iter().copied().enumerate() {
        let is_last = at + 1 == pieces.len();
        // The line ends inside of the head of the arrow, which covers its end.
        let (top, bottom) = if is_last { (top.min(bottom - HEAD + 1.0), bottom - HEAD + 1.0) } else { (top, bottom) };
        if at == 0 {
            put(out, format_args!("M{} {}", number(next), number(top)));
        } else {
            let middle = (y + top) / 2.0;
            put(
                out,
                format_args!(
                    "C{} {} {} {} {} {}",
                    number(x),
                    number(middle),
                    number(next),
                    number(middle),
                    number(next),
                    number(top)
                ),
            );
        }
        if bottom > top {
            put(out, format_args!("V{}", number(bottom)));
        }
        (x, y) = (next, bottom);
    }
    (x, y + HEAD - 1.0)
}

/// Appends straight pieces with round corners; returns the end.
fn push_corners(out: &mut String, corners: &[(f64, f64)]) -> (f64, f64) {
    let (end, before) = (corners[corners.len() - 1], corners[0]);
    put(out, format_args!("M{} {}", number(before.0), number(before.1)));
    for three in corners.windows(3) {
        let (a, b, c) = (three[0], three[1], three[2]);
        let length = |from: (f64, f64), to: (f64, f64)| (from.0 - to.0).abs() + (from.1 - to.1).abs();
        let radius = RADIUS.min(length(a, b) / 2.0).min(length(b, c) / 2.0);
        let toward = |to: (f64, f64)| {
            let long = length(b, to).max(0.001);
            (number(b.0 + (to.0 - b.0) / long * radius), number(b.1 + (to.1 - b.1) / long * radius))
        };
        let (first, second) = (toward(a), toward(c));
        put(out, format_args!("L{} {}Q{} {} {} {}", first.0, first.1, number(b.0), number(b.1), second.0, second.1));
    }
    put(out, format_args!("V{}", number(end.1 - HEAD + 1.0)));
    end
}
