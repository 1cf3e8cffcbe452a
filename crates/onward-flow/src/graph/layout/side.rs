//! Routes lines beside the layers: out of the box below it, along a lane at the right, and into the box from above.

use super::place::RUN_GAP;
use super::{Area, EdgeLine, LABEL_HEIGHT, Ranked};

/// Space between a lane and what is left of it.
const LANE_GAP: f64 = 22.0;
/// Space between a box and the first horizontal piece.
const FIRST_RUN: f64 = 12.0;
/// More space above a box, for the arrow.
const ARROW: f64 = 4.0;
/// Space between a label of a lane and what is left of it.
const LABEL_GAP: f64 = 14.0;
/// The number of lanes up to which each is placed as far left as possible.
const NEAT_MAX: usize = 200;

/// A line beside the layers.
pub struct Lane {
    pub line: usize,
    pub corners: Vec<(f64, f64)>,
    pub label: Option<Area>,
}

/// Counts the horizontal pieces below each layer.
pub fn runs(ranked: &Ranked) -> Vec<usize> {
    let mut runs = vec![0; ranked.ranks.len()];
    for (from, to) in &ranked.beside_ends {
        runs[ranked.items[*from].rank] += 1;
        if let Some(above) = ranked.items[*to].rank.checked_sub(1) {
            runs[above] += 1;
        }
    }
    runs
}

/// Routes all lines beside the layers, short ones first, so that they are the inner ones.
pub fn route(ranked: &Ranked, lines: &[EdgeLine]) -> Vec<Lane> {
    let right = |rank: &Vec<usize>| rank.iter().map(|item| ranked.area(*item).right()).fold(f64::MIN, f64::max);
    // The right edge of what is in each layer; lanes are added to it.
    let mut rights: Vec<f64> = ranked.ranks.iter().map(right).collect();
    let rank_of = |at: usize| ranked.items[at].rank;
    let mut order = ranked.beside.clone();
    order.sort_by_key(|line| (rank_of(lines[*line].from).abs_diff(rank_of(lines[*line].to)), *line));
    let is_neat = order.len() <= NEAT_MAX;
    let mut widest = rights.iter().copied().fold(f64::MIN, f64::max);
    let (mut leaving, mut arriving) = (vec![0; rights.len()], vec![0; rights.len()]);
    let mut lanes = Vec::new();
    for line in order {
        let EdgeLine { from, to, label, .. } = lines[line];
        let (first, last) = (rank_of(from).min(rank_of(to)), rank_of(from).max(rank_of(to)));
        let span = first.saturating_sub(1)..(last + 2).min(rights.len());
        let inner = if is_neat { rights[span.clone()].iter().copied().fold(f64::MIN, f64::max) } else { widest };
        let x = (inner + label.map_or(LANE_GAP, |width| LANE_GAP.max(width / 2.0 + LABEL_GAP))).round();
        let (source, target) = (ranked.area(from), ranked.area(to));
        let leave = ranked.band(rank_of(from)).1 + FIRST_RUN + RUN_GAP * f64::from(leaving[rank_of(from)]);
        let arrive = ranked.band(rank_of(to)).0 - ARROW - FIRST_RUN - RUN_GAP * f64::from(arriving[rank_of(to)]);
        leaving[rank_of(from)] += 1;
        arriving[rank_of(to)] += 1;
        let (out, into) = (source.center + (source.width * 0.2).round(), target.center + (target.width * 0.2).round());
        let corners = vec![(out, source.bottom()), (out, leave), (x, leave), (x, arrive), (into, arrive), (into, target.top)];
        let label = label.map(|width| {
            let y = leave + if arrive < leave { -LABEL_HEIGHT - 12.0 } else { 12.0 };
            Area { center: x, top: y, width, height: LABEL_HEIGHT }
        });
        let outer = label.map_or(x, |label| label.right().max(x));
        widest = widest.max(outer);
        rights[span].iter_mut().for_each(|right| *right = right.max(outer));
        lanes.push(Lane { line, corners, label });
    }
    lanes
}
