//! Assigns layers: boxes by the longest path to them, labels and bends between them.

use std::collections::{BTreeMap, HashMap};

use super::{Area, EdgeLine, LABEL_HEIGHT, Size};

/// The most bends; the lines that would need more run beside the layers.
const BENDS_MAX: usize = 20_000;

/// A box, label or bend. The boxes come first, with the positions that they have outside.
#[derive(Debug, Clone)]
pub struct LayoutItem {
    pub rank: usize,
    pub size: Size,
    pub is_bend: bool,
    /// The center.
    pub x: f64,
    /// Neighbors in the layer above and in the layer below, with weights.
    pub above: Vec<(usize, f64)>,
    pub below: Vec<(usize, f64)>,
}

/// Items in layers.
#[derive(Debug)]
pub struct Ranked {
    pub items: Vec<LayoutItem>,
    /// The items of each layer, from left to right.
    pub ranks: Vec<Vec<usize>>,
    /// The upper and lower edge of each layer.
    pub bands: Vec<(f64, f64)>,
    /// The items of each line in order; empty for lines beside the layers.
    pub chains: Vec<Vec<usize>>,
    /// The label of each line.
    pub labels: Vec<Option<usize>>,
    /// The lines beside the layers.
    pub beside: Vec<usize>,
    /// The boxes at the ends of each of them.
    pub beside_ends: Vec<(usize, usize)>,
}

impl Ranked {
    /// Returns the area of an item, in the middle of its layer.
    pub fn area(&self, item: usize) -> Area {
        let LayoutItem { rank, size, x, .. } = &self.items[item];
        let (top, bottom) = self.band(*rank);
        Area { center: *x, top: top + (bottom - top - size.height) / 2.0, width: size.width, height: size.height }
    }

    /// Returns the upper and lower edge of a layer.
    pub fn band(&self, rank: usize) -> (f64, f64) {
        self.bands[rank]
    }
}

/// Assigns a layer to each box, and adds labels and bends.
pub fn rank(sizes: &[Size], lines: &[EdgeLine]) -> Ranked {
    let is_back = back_lines(sizes.len(), lines);
    let layers = layers(sizes.len(), lines, &is_back);
    let (mut through, mut beside): (Vec<usize>, Vec<usize>) = (0..lines.len()).partition(|line| !is_back[*line]);
    // Short lines first, because they look best as direct ones.
    let span = |line: usize| layers[lines[line].to].saturating_sub(layers[lines[line].from]);
    through.sort_by_key(|line| (span(*line), *line));
    let mut bends = 0;
    through.retain(|line| {
        bends += 2 * span(*line);
        let fits = bends <= BENDS_MAX || span(*line) == 1;
        if !fits {
            beside.push(*line);
        }
        fits
    });
    through.sort_unstable();
    beside.sort_unstable();
    // Each layer of boxes may have a layer of labels below it.
    let mut has_labels = vec![false; layers.iter().max().map_or(0, |max| max + 1)];
    through.iter().filter(|line| lines[**line].label.is_some()).for_each(|line| has_labels[layers[lines[*line].from]] = true);
    let mut next = 0;
    let mut rank_of = Vec::with_capacity(has_labels.len());
    for labels in has_labels {
        rank_of.push(next);
        next += 1 + usize::from(labels);
    }
    let items = sizes.iter().zip(&layers).map(|(size, layer)| item(rank_of[*layer], *size, false)).collect();
    let mut ranked = Ranked {
        items,
        ranks: vec![Vec::new(); next],
        bands: Vec::new(),
        chains: vec![Vec::new(); lines.len()],
        labels: vec![None; lines.len()],
        beside_ends: beside.iter().map(|line| (lines[*line].from, lines[*line].to)).collect(),
        beside,
    };
    add_chains(&mut ranked, lines, &through);
    for (index, item) in ranked.items.iter().enumerate() {
        ranked.ranks[item.rank].push(index);
    }
    ranked
}

fn item(rank: usize, size: Size, is_bend: bool) -> LayoutItem {
    LayoutItem { rank, size, is_bend, x: 0.0, above: Vec::new(), below: Vec::new() }
}

/// Adds the labels and bends of lines, and makes the items of each line neighbors.
fn add_chains(ranked: &mut Ranked, lines: &[EdgeLine], through: &[usize]) {
    let mut bends: HashMap<(usize, usize, usize), usize> = HashMap::new();
    let mut weights: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for &index in through {
        let line = &lines[index];
        let (first, last) = (ranked.items[line.from].rank, ranked.items[line.to].rank);
        let mut chain = vec![line.from];
        for rank in first + 1..last {
            let label = line.label.filter(|_| rank == first + 1);
            let next = ranked.items.len();
            let at = match label {
                Some(_) => {
                    ranked.labels[index] = Some(next);
                    next
                }
                None => *bends.entry((line.to, line.style, rank)).or_insert(next),
            };
            if at == next {
                let size = Size { width: label.unwrap_or(0.0), height: label.map_or(0.0, |_| LABEL_HEIGHT) };
                ranked.items.push(item(rank, size, label.is_none()));
            }
            chain.push(at);
        }
        chain.push(line.to);
        for pair in chain.windows(2) {
            let is_long = ranked.items[pair[0]].is_bend && ranked.items[pair[1]].is_bend;
            let weight = line.weight * if is_long { 4.0 } else { 1.0 };
            let known = weights.entry((pair[0], pair[1])).or_default();
            *known = known.max(weight);
        }
        ranked.chains[index] = chain;
    }
    for ((upper, lower), weight) in weights {
        ranked.items[upper].below.push((lower, weight));
        ranked.items[lower].above.push((upper, weight));
    }
}

/// Returns for each line whether it leads back to a box on the way to it, found by a search in depth in the order of the lines.
fn back_lines(boxes: usize, lines: &[EdgeLine]) -> Vec<bool> {
    let mut leaving = vec![Vec::new(); boxes];
    lines.iter().enumerate().for_each(|(index, line)| leaving[line.from].push(index));
    let mut is_back = vec![false; lines.len()];
    let (mut is_open, mut is_known) = (vec![false; boxes], vec![false; boxes]);
    for root in 0..boxes {
        if is_known[root] {
            continue;
        }
        let mut path = vec![(root, 0)];
        (is_open[root], is_known[root]) = (true, true);
        while let Some((at, done)) = path.last_mut() {
            let Some(&line) = leaving[*at].get(*done) else {
                is_open[*at] = false;
                path.pop();
                continue;
            };
            *done += 1;
            let to = lines[line].to;
            if is_open[to] {
                is_back[line] = true;
            } else if !is_known[to] {
                (is_open[to], is_known[to]) = (true, true);
                path.push((to, 0));
            }
        }
    }
    is_back
}

/// Returns the layer of each box: one more than the deepest box above it. A box without lines to it is right above its next one.
fn layers(boxes: usize, lines: &[EdgeLine], is_back: &[bool]) -> Vec<usize> {
    let forward = || lines.iter().zip(is_back).filter(|(_, back)| !**back).map(|(line, _)| line);
    let (mut below, mut missing) = (vec![Vec::new(); boxes], vec![0_usize; boxes]);
    for line in forward() {
        below[line.from].push(line.to);
        missing[line.to] += 1;
    }
    let mut layers = vec![0; boxes];
    let mut ready: Vec<usize> = (0..boxes).rev().filter(|at| missing[*at] == 0).collect();
    while let Some(at) = ready.pop() {
        for &to in &below[at] {
            layers[to] = layers[to].max(layers[at] + 1);
            missing[to] -= 1;
            if missing[to] == 0 {
                ready.push(to);
            }
        }
    }
    let (deepest, mut is_reached) = (layers.iter().copied().max().unwrap_or(0), vec![false; boxes]);
    forward().for_each(|line| is_reached[line.to] = true);
    for at in (1..boxes).filter(|at| !is_reached[*at]) {
        layers[at] = below[at].iter().map(|to| layers[*to] - 1).min().unwrap_or(deepest);
    }
    layers
}
