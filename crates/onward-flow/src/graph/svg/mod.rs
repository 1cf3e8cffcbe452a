//! The graph as a self-contained SVG, for light and dark pages, with or without the progress of a run.
//!
//! Must never contain scripts, references or fonts of other places.

mod line;
mod style;

use std::fmt::Write;

use super::layout::{Area, EdgeLine, LABEL_HEIGHT, Layout, Size, lay_out};
use super::text::{fit, is_uncertain, push_xml, width};
use super::{Edge, EdgeKind, Graph, GraphNode, NodeKind, Taken};
use crate::machine::{Progress, ProgressState};
use style::{GLYPHS, STYLE, color};

/// Width of a box, at least and at most.
const BOX_MIN: f64 = 164.0;
const BOX_MAX: f64 = 280.0;
/// Height of a box without badges, of a row of badges, and of the start and the end.
const BOX_HEIGHT: f64 = 52.0;
const ROW_HEIGHT: f64 = 22.0;
const PILL_HEIGHT: f64 = 34.0;
/// Where texts begin in a box, and the space right of them.
const TEXT_LEFT: f64 = 48.0;
const TEXT_RIGHT: f64 = 16.0;
const BADGE_LEFT: f64 = 12.0;
const BADGE_GAP: f64 = 6.0;
const BADGE_PADDING: f64 = 7.0;
/// Font sizes; [`STYLE`] has the same.
const NAME_SIZE: f64 = 13.5;
const DETAIL_SIZE: f64 = 11.5;
const BADGE_SIZE: f64 = 10.5;
const LABEL_SIZE: f64 = 11.0;
const LABEL_MAX: f64 = 170.0;
/// The longest description for screen readers, in bytes.
const SPOKEN_MAX: usize = 4_000;

/// Returns the graph as an SVG document. With the progress of a run, the steps and ways that it took stand out.
pub fn svg(graph: &Graph, taken: Option<&Taken>) -> String {
    let cards: Vec<Card> = graph.nodes.iter().map(Card::of).collect();
    let sizes: Vec<Size> = cards.iter().map(|card| card.size).collect();
    let labels: Vec<Option<String>> = graph.edges.iter().map(label).collect();
    let layout = lay_out(&sizes, &lines(graph, &labels));
    let mut out = String::new();
    head(&mut out, graph, &layout);
    // Ways that were taken are above the others.
    for is_taken in [false, true] {
        for (edge, course) in graph.edges.iter().zip(&layout.courses) {
            let has_taken = taken.is_some_and(|taken| taken.has_taken(graph, edge));
            if has_taken == is_taken {
                line::draw(&mut out, graph, edge, course, taken.map(|_| has_taken));
            }
        }
    }
    for ((area, text), edge) in layout.labels.iter().zip(&labels).zip(&graph.edges) {
        if let (Some(area), Some(text)) = (area, text) {
            let is_open = taken.is_some_and(|taken| !taken.has_taken(graph, edge));
            draw_label(&mut out, area, text, is_open);
        }
    }
    for ((node, card), area) in graph.nodes.iter().zip(&cards).zip(&layout.boxes) {
        card.draw(&mut out, node, area, taken);
    }
    out.push_str("</svg>\n");
    out
}

/// Returns the areas of the boxes, for tests.
#[cfg(test)]
pub(super) fn measured(graph: &Graph) -> Layout {
    let sizes: Vec<Size> = graph.nodes.iter().map(|node| Card::of(node).size).collect();
    let labels: Vec<Option<String>> = graph.edges.iter().map(label).collect();
    lay_out(&sizes, &lines(graph, &labels))
}

fn lines(graph: &Graph, labels: &[Option<String>]) -> Vec<EdgeLine> {
    let line = |(edge, label): (&Edge, &Option<String>)| {
        let weight = match edge.kind {
            EdgeKind::Next if edge.to == edge.from + 1 && graph.nodes[edge.to].kind != NodeKind::End => 4.0,
            EdgeKind::Next | EdgeKind::Branch | EdgeKind::Join => 2.0,
            EdgeKind::Skip | EdgeKind::Catch => 0.5,
        };
        let label = label.as_deref().map(|label| width(label, LABEL_SIZE) + 12.0);
        // Each branch has a line of its own to its join.
        let own = if edge.kind == EdgeKind::Join { 1 + edge.from } else { 0 };
        let style = edge.kind as usize + own * (1 + EdgeKind::Catch as usize);
        EdgeLine { from: edge.from, to: edge.to, style, weight, label: label.map(f64::ceil) }
    };
    graph.edges.iter().zip(labels).map(line).collect()
}

fn label(edge: &Edge) -> Option<String> {
    edge.label.as_deref().filter(|label| !label.is_empty()).map(|label| fit(label, LABEL_MAX, LABEL_SIZE))
}

fn head(out: &mut String, graph: &Graph, layout: &Layout) {
    let (width, height) = (layout.width.ceil(), layout.height.ceil());
    // Several pictures may be on one page, so the ids contain the name.
    let id: String = graph.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    put(
        out,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"onward-flow\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"flow-{id}-title flow-{id}-desc\">\n"
        ),
    );
    put(out, format_args!("<title id=\"flow-{id}-title\">Flow "));
    push_xml(out, &graph.name);
    put(out, format_args!("</title>\n<desc id=\"flow-{id}-desc\">"));
    push_xml(out, &spoken(graph));
    put(out, format_args!("</desc>\n<style>\n{STYLE}</style>\n"));
    put(out, format_args!("<rect class=\"ground\" width=\"{width}\" height=\"{height}\" rx=\"12\"/>\n"));
}

/// Returns the graph in words.
fn spoken(graph: &Graph) -> String {
    let mut words = graph.description.as_ref().map(|description| format!("{description}. ")).unwrap_or_default();
    for edge in &graph.edges {
        if words.len() > SPOKEN_MAX {
            words.push_str("And so on.");
            break;
        }
        let name = |at: usize| match &graph.nodes[at] {
            node if node.kind == NodeKind::Start => "start",
            node => node.name.as_str(),
        };
        words.push_str(&format!("{} to {}", name(edge.from), name(edge.to)));
        match (edge.kind, &edge.label) {
            (EdgeKind::Catch, Some(label)) => words.push_str(&format!(" on {label}")),
            (_, Some(label)) => words.push_str(&format!(" if {label}")),
            _ => {}
        }
        words.push_str(". ");
    }
    words.truncate(words.trim_end().len());
    words
}

/// A box with its texts as they fit.
struct Card {
    size: Size,
    name: String,
    detail: String,
    /// The badges in rows, each with its width.
    rows: Vec<Vec<(String, f64)>>,
}

impl Card {
    fn of(node: &GraphNode) -> Card {
        if matches!(node.kind, NodeKind::Start | NodeKind::End) {
            let name = fit(&node.name, BOX_MAX - 40.0, NAME_SIZE);
            let detail = node.detail.as_deref().map(|detail| fit(detail, BOX_MAX - 40.0, DETAIL_SIZE)).unwrap_or_default();
            let wide = width(&name, NAME_SIZE).max(width(&detail, DETAIL_SIZE)) + 40.0;
            let height = if detail.is_empty() { PILL_HEIGHT } else { PILL_HEIGHT + 14.0 };
            return Card { size: Size { width: even(wide.max(88.0)), height }, name, detail, rows: Vec::new() };
        }
        let room = BOX_MAX - TEXT_LEFT - TEXT_RIGHT;
        let name = fit(&node.name, room, NAME_SIZE);
        let detail = match &node.detail {
            Some(detail) if node.kind == NodeKind::Unknown => detail.clone(),
            Some(detail) => format!("{} · {detail}", node.kind.as_str()),
            None => node.kind.as_str().to_owned(),
        };
        let detail = fit(&detail, room, DETAIL_SIZE);
        let mut rows: Vec<Vec<(String, f64)>> = Vec::new();
        let (mut used, mut widest) = (f64::MAX, 0.0_f64);
        for badge in &node.badges {
            let text = fit(&badge.text, BOX_MAX - 2.0 * BADGE_LEFT - 2.0 * BADGE_PADDING, BADGE_SIZE);
            let wide = (width(&text, BADGE_SIZE) + 2.0 * BADGE_PADDING).ceil();
            if used + BADGE_GAP + wide > BOX_MAX - 2.0 * BADGE_LEFT {
                rows.push(Vec::new());
                used = -BADGE_GAP;
            }
            used += BADGE_GAP + wide;
            widest = widest.max(used);
            rows.last_mut().expect("the first badge begins a row").push((text, wide));
        }
        let texts = width(&name, NAME_SIZE).max(width(&detail, DETAIL_SIZE)) + TEXT_LEFT + TEXT_RIGHT;
        let wide = texts.max(widest + 2.0 * BADGE_LEFT).clamp(BOX_MIN, BOX_MAX);
        let badges = if rows.is_empty() { 0.0 } else { rows.len() as f64 * ROW_HEIGHT + 4.0 };
        Card { size: Size { width: even(wide), height: BOX_HEIGHT + badges }, name, detail, rows }
    }

    fn draw(&self, out: &mut String, node: &GraphNode, area: &Area, taken: Option<&Taken>) {
        let progress = taken.and_then(|taken| taken.steps.get(&node.name)).filter(|_| node.kind != NodeKind::Start);
        let state = match (taken, node.kind) {
            (None, _) => "",
            (Some(_), NodeKind::Start) => " done",
            (Some(taken), NodeKind::End) => {
                if taken.is_completed {
                    " done"
                } else {
                    " open"
                }
            }
            (Some(_), _) => progress.map_or(" open", |progress| class(progress.state)),
        };
        put(out, format_args!("<g class=\"node {}{state}\"", color(node.kind)));
        if !matches!(node.kind, NodeKind::Start | NodeKind::End) {
            out.push_str(" data-step=\"");
            push_xml(out, &node.name);
            out.push('"');
        }
        put(out, format_args!(" transform=\"translate({} {})\"><title>", number(area.left()), number(area.top)));
        push_xml(out, &tooltip(node, progress));
        out.push_str("</title>");
        if matches!(node.kind, NodeKind::Start | NodeKind::End) {
            self.draw_pill(out);
        } else {
            self.draw_card(out, node);
        }
        if let Some(progress) = progress {
            self.draw_progress(out, progress);
        }
        out.push_str("</g>\n");
    }

    fn draw_pill(&self, out: &mut String) {
        let Size { width, height } = self.size;
        put(out, format_args!("<rect class=\"card\" width=\"{width}\" height=\"{height}\" rx=\"{}\"/>", height / 2.0));
        let middle = width / 2.0;
        let y = if self.detail.is_empty() { height / 2.0 + 4.5 } else { 20.0 };
        self.text(out, "name mid", middle, y, &self.name);
        if !self.detail.is_empty() {
            self.text(out, "detail mid", middle, 36.0, &self.detail);
        }
    }

    fn draw_card(&self, out: &mut String, node: &GraphNode) {
        let Size { width, height } = self.size;
        put(out, format_args!("<rect class=\"card\" width=\"{width}\" height=\"{height}\" rx=\"10\"/>"));
        put(out, format_args!("<rect class=\"tile\" x=\"11\" y=\"12\" width=\"28\" height=\"28\" rx=\"8\"/>"));
        let glyph = GLYPHS.iter().find(|(kind, _)| *kind == node.kind).map_or("", |(_, glyph)| *glyph);
        put(out, format_args!("<path class=\"glyph\" transform=\"translate(13 14)\" d=\"{glyph}\"/>"));
        self.text(out, "name", TEXT_LEFT, 23.0, &self.name);
        self.text(out, "detail", TEXT_LEFT, 40.0, &self.detail);
        for (row, badges) in self.rows.iter().enumerate() {
            let (mut x, y) = (BADGE_LEFT, BOX_HEIGHT - 2.0 + row as f64 * ROW_HEIGHT);
            for (text, wide) in badges {
                put(out, format_args!("<rect class=\"badge\" x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"17\" rx=\"8.5\"/>"));
                self.text(out, "mark mid", x + wide / 2.0, y + 12.2, text);
                x += wide + BADGE_GAP;
            }
        }
    }

    /// Draws a text. One whose width depends on the font is clipped at the box.
    fn text(&self, out: &mut String, class: &str, x: f64, y: f64, text: &str) {
        let is_clipped = is_uncertain(text);
        if is_clipped {
            put(out, format_args!("<svg width=\"{}\" height=\"{}\">", self.size.width - 4.0, self.size.height));
        }
        put(out, format_args!("<text class=\"{class}\" x=\"{}\" y=\"{}\">", number(x), number(y)));
        push_xml(out, text);
        out.push_str("</text>");
        if is_clipped {
            out.push_str("</svg>");
        }
    }

    /// Draws the state in the upper right corner, and counts on the lower edge.
    fn draw_progress(&self, out: &mut String, progress: &Progress) {
        let Size { width, height } = self.size;
        let glyph = match progress.state {
            ProgressState::Running => "M-3.5 0a3.5 3.5 0 1 1 3.5 3.5",
            ProgressState::Done => "M-3.6 .2L-1 2.8 3.6-2.4",
            ProgressState::Failed => "M-2.8-2.8L2.8 2.8M2.8-2.8L-2.8 2.8",
            ProgressState::Skipped | ProgressState::Canceled => "M-3.2 0H3.2",
        };
        put(
            out,
            format_args!(
                "<g class=\"state\" transform=\"translate({} 0)\"><circle r=\"9\"/><path d=\"{glyph}\"/></g>",
                number(width - 4.0)
            ),
        );
        if let (Some(done), Some(of)) = (progress.done, progress.of) {
            draw_count(out, &format!("{done}/{of}"), width - 12.0, height, true);
        }
        if progress.times > 1 {
            draw_count(out, &format!("{}×", progress.times), 12.0, height, false);
        }
    }
}

/// Draws a count on the lower edge of a box, which ends or begins at `x`.
fn draw_count(out: &mut String, text: &str, x: f64, y: f64, ends: bool) {
    let wide = (width(text, BADGE_SIZE) + 14.0).ceil();
    let left = if ends { x - wide } else { x };
    put(
        out,
        format_args!(
            "<g class=\"count\"><rect x=\"{}\" y=\"{}\" width=\"{wide}\" height=\"17\" rx=\"8.5\"/>\
             <text class=\"mark mid\" x=\"{}\" y=\"{}\">{text}</text></g>",
            number(left),
            number(y - 9.0),
            number(left + wide / 2.0),
            number(y + 3.2)
        ),
    );
}

fn draw_label(out: &mut String, area: &Area, text: &str, is_open: bool) {
    let class = if is_open { "label open" } else { "label" };
    put(
        out,
        format_args!(
            "<g class=\"{class}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{LABEL_HEIGHT}\" rx=\"9\"/>",
            number(area.left()),
            number(area.top),
            number(area.width)
        ),
    );
    put(out, format_args!("<text class=\"mid\" x=\"{}\" y=\"{}\">", number(area.center), number(area.top + 12.8)));
    push_xml(out, text);
    out.push_str("</text></g>\n");
}

fn class(state: ProgressState) -> &'static str {
    match state {
        ProgressState::Running => " running",
        ProgressState::Done => " done",
        ProgressState::Skipped => " skipped",
        ProgressState::Canceled => " canceled",
        ProgressState::Failed => " failed",
    }
}

/// Returns the whole texts of a step and its state.
fn tooltip(node: &GraphNode, progress: Option<&Progress>) -> String {
    let mut words = format!("{} ({})", node.name, node.kind.as_str());
    for text in [&node.detail, &node.text].into_iter().flatten() {
        words.push_str(&format!("\n{text}"));
    }
    node.badges.iter().for_each(|badge| words.push_str(&format!("\n{}", badge.text)));
    if let Some(progress) = progress {
        words.push_str(&format!("\nnow:{}", class(progress.state)));
        if let (Some(done), Some(of)) = (progress.done, progress.of) {
            words.push_str(&format!(", {done} of {of}"));
        }
    }
    words
}

/// Rounds up to an even number, so that centers are whole numbers.
fn even(width: f64) -> f64 {
    (width / 2.0).ceil() * 2.0
}

/// Rounds to a tenth, without `.0`.
fn number(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn put(out: &mut String, text: std::fmt::Arguments) {
    out.write_fmt(text).expect("writing to a text cannot fail");
}
