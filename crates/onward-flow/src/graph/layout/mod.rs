//! Places boxes in layers and routes lines between them.
//!
//! Lines that lead back, or over very many layers, run beside the layers. All others pass each layer between its boxes: at a bend, or
//! at their label, which has a place of its own. So no box, label or line covers another box or label.

mod order;
mod place;
mod ranks;
mod side;

pub use ranks::Ranked;

/// A line to route, between boxes by their positions.
#[derive(Debug, Clone, Copy)]
pub struct EdgeLine {
    pub from: usize,
    pub to: usize,
    /// Lines of one style to one box share their bends.
    pub style: usize,
    /// How straight the line should be.
    pub weight: f64,
    /// The width of its label.
    pub label: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    pub width: f64,
    pub height: f64,
}

/// An area, by its center and its upper edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    pub center: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Area {
    pub fn left(&self) -> f64 {
        self.center - self.width / 2.0
    }

    pub fn right(&self) -> f64 {
        self.center + self.width / 2.0
    }

    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

/// The course of a line.
#[derive(Debug, Clone, PartialEq)]
pub enum Course {
    /// Vertical pieces `(x, from y, to y)`, from above to below, with curves between them.
    Through(Vec<(f64, f64, f64)>),
    /// Corners of a line with horizontal and vertical pieces.
    Beside(Vec<(f64, f64)>),
}

#[derive(Debug)]
pub struct Layout {
    pub width: f64,
    pub height: f64,
    pub boxes: Vec<Area>,
    pub courses: Vec<Course>,
    pub labels: Vec<Option<Area>>,
}

pub const LABEL_HEIGHT: f64 = 18.0;
/// The space around everything.
const MARGIN: f64 = 28.0;

/// Lays out boxes and lines.
pub fn lay_out(sizes: &[Size], lines: &[EdgeLine]) -> Layout {
    let mut ranked = ranks::rank(sizes, lines);
    order::arrange(&mut ranked);
    place::place(&mut ranked);
    let side = side::route(&ranked, lines);
    let mut courses: Vec<Course> = ranked.chains.iter().map(|chain| Course::Through(through(&ranked, chain))).collect();
    let mut labels: Vec<Option<Area>> = ranked.labels.iter().map(|label| label.map(|item| ranked.area(item))).collect();
    for lane in side {
        courses[lane.line] = Course::Beside(lane.corners);
        labels[lane.line] = lane.label;
    }
    let boxes: Vec<Area> = (0..sizes.len()).map(|item| ranked.area(item)).collect();
    into_corner(boxes, courses, labels)
}

/// Returns the vertical pieces of a line: one for each layer that it passes, and its ends.
fn through(ranked: &Ranked, chain: &[usize]) -> Vec<(f64, f64, f64)> {
    let mut pieces: Vec<(f64, f64, f64)> = Vec::new();
    for (at, item) in chain.iter().enumerate() {
        let area = ranked.area(*item);
        let piece = match at {
            0 => (area.center, area.bottom(), area.bottom()),
            _ if at + 1 == chain.len() => (area.center, area.top, area.top),
            _ => {
                let (top, bottom) = ranked.band(ranked.items[*item].rank);
                (area.center, top, bottom)
            }
        };
        match pieces.last_mut() {
            Some(last) if (last.0 - piece.0).abs() < 0.5 => last.2 = piece.2,
            _ => pieces.push(piece),
        }
    }
    pieces
}

/// Moves everything so that it begins at the margin, and measures it.
fn into_corner(mut boxes: Vec<Area>, mut courses: Vec<Course>, mut labels: Vec<Option<Area>>) -> Layout {
    let (mut left, mut right, mut top, mut bottom) = (f64::MAX, f64::MIN, 0.0_f64, 0.0_f64);
    let mut take = |x: f64, y: f64| {
        left = left.min(x);
        right = right.max(x);
        top = top.min(y);
        bottom = bottom.max(y);
    };
    for area in boxes.iter().chain(labels.iter().flatten()) {
        take(area.left(), area.bottom());
        take(area.right(), area.bottom());
    }
    for course in &courses {
        match course {
            Course::Through(pieces) => pieces.iter().for_each(|(x, _, y)| take(*x, *y)),
            Course::Beside(corners) => corners.iter().for_each(|(x, y)| take(*x, *y)),
        }
    }
    let (dx, dy) = (MARGIN - left, MARGIN - top);
    for area in boxes.iter_mut().chain(labels.iter_mut().flatten()) {
        area.center += dx;
        area.top += dy;
    }
    for course in &mut courses {
        match course {
            Course::Through(pieces) => pieces.iter_mut().for_each(|piece| *piece = (piece.0 + dx, piece.1 + dy, piece.2 + dy)),
            Course::Beside(corners) => corners.iter_mut().for_each(|corner| *corner = (corner.0 + dx, corner.1 + dy)),
        }
    }
    Layout { width: right - left + 2.0 * MARGIN, height: bottom - top + 2.0 * MARGIN, boxes, courses, labels }
}
