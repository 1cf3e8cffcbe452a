//! Assigns coordinates: items near their neighbors, in the order of their layer, and layers below each other.

use super::Ranked;
use super::ranks::LayoutItem;

/// Space between two boxes, between a box and a line, and between two lines.
const BOX_GAP: f64 = 40.0;
const LINE_GAP: f64 = 24.0;
const BEND_GAP: f64 = 16.0;
/// Space between two layers, at least and at most.
const RANK_GAP: f64 = 36.0;
const RANK_GAP_MAX: f64 = 120.0;
/// Space above and below labels.
const LABEL_GAP: f64 = 20.0;
/// Space for each horizontal piece of a line beside the layers.
pub const RUN_GAP: f64 = 10.0;
/// The number of rounds in which items move toward their neighbors.
const ROUNDS: usize = 24;
const ROUNDS_LARGE: usize = 8;
const LARGE: usize = 5_000;
/// The number of rounds in which lines become straight.
const STRAIGHTENINGS: usize = 4;

/// Places all items.
pub fn place(ranked: &mut Ranked) {
    spread(ranked);
    let rounds = if ranked.items.len() > LARGE { ROUNDS_LARGE } else { ROUNDS };
    let count = ranked.ranks.len();
    for round in 0..rounds {
        let both = round + 4 >= rounds;
        for rank in 1..count {
            settle(ranked, rank, true, both);
        }
        for rank in (0..count.saturating_sub(1)).rev() {
            settle(ranked, rank, both, true);
        }
    }
    straighten(ranked);
    for item in &mut ranked.items {
        item.x = item.x.round();
    }
    stack(ranked);
}

/// Returns the distance of the centers of two neighbors in a layer.
fn distance(left: &LayoutItem, right: &LayoutItem) -> f64 {
    let gap = match (left.is_bend, right.is_bend) {
        (true, true) => BEND_GAP,
        (false, false) => BOX_GAP,
        _ => LINE_GAP,
    };
    (left.size.width + right.size.width) / 2.0 + gap
}

/// Places the items of each layer side by side.
fn spread(ranked: &mut Ranked) {
    for rank in &ranked.ranks {
        let mut x = 0.0;
        for at in 0..rank.len() {
            if at > 0 {
                x += distance(&ranked.items[rank[at - 1]], &ranked.items[rank[at]]).ceil() + 1.0;
            }
            ranked.items[rank[at]].x = x;
        }
        rank.iter().for_each(|item| ranked.items[*item].x -= x / 2.0);
    }
}

/// Moves the items of a layer toward their neighbors: the places with the least squares of distances that keep order and space.
fn settle(ranked: &mut Ranked, rank: usize, above: bool, below: bool) {
    let items = std::mem::take(&mut ranked.ranks[rank]);
    // Without the space between items, the places only have to be ascending.
    let mut space = 0.0;
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    let mut spaces = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            space += distance(&ranked.items[items[at - 1]], &ranked.items[*item]).ceil() + 1.0;
        }
        spaces.push(space);
        let (wish, weight) = wish(ranked, *item, above, below);
        let mut block = (wish - space, weight, 1);
        while let Some(last) = blocks.last().filter(|last| last.0 >= block.0) {
            let weight = last.1 + block.1;
            block = ((last.0 * last.1 + block.0 * block.1) / weight, weight, last.2 + block.2);
            blocks.pop();
        }
        blocks.push(block);
    }
    let places = blocks.iter().flat_map(|(x, _, count)| std::iter::repeat_n(*x, *count));
    for ((item, x), space) in items.iter().zip(places).zip(spaces) {
        ranked.items[*item].x = x + space;
    }
    ranked.ranks[rank] = items;
}

/// Returns where an item wants to be, and how much.
fn wish(ranked: &Ranked, item: usize, above: bool, below: bool) -> (f64, f64) {
    let known = &ranked.items[item];
    let above = known.above.iter().filter(|_| above);
    let (mut sum, mut weight) = (0.0, 0.0);
    for (neighbor, pull) in above.chain(known.below.iter().filter(|_| below)) {
        sum += ranked.items[*neighbor].x * pull;
        weight += pull;
    }
    if weight == 0.0 { (known.x, 0.01) } else { (sum / weight, weight) }
}

/// Makes lines straight: items that belong below each other get the same center, as far as their neighbors leave space.
fn straighten(ranked: &mut Ranked) {
    let columns = columns(ranked);
    let mut position = vec![0; ranked.items.len()];
    ranked.ranks.iter().flat_map(|rank| rank.iter().enumerate()).for_each(|(at, item)| position[*item] = at);
    for _ in 0..STRAIGHTENINGS {
        for column in &columns {
            let mut rest = column.as_slice();
            while !rest.is_empty() {
                rest = straighten_first(ranked, rest, &position);
            }
        }
    }
}

/// Gives as many of the first items of a column as possible the same center, and returns the others.
fn straighten_first<'a>(ranked: &mut Ranked, column: &'a [usize], position: &[usize]) -> &'a [usize] {
    let (mut low, mut high, mut count) = (f64::MIN, f64::MAX, 0);
    let (mut sum, mut weight) = (0.0, 0.0);
    for item in column {
        let (left, right) = room(ranked, *item, position[*item]);
        if low.max(left) > high.min(right) {
            break;
        }
        (low, high) = (low.max(left), high.min(right));
        let (wish, pull) = wish(ranked, *item, true, true);
        sum += wish * pull;
        weight += pull;
        count += 1;
    }
    let x = (sum / weight).clamp(low, high);
    column[..count].iter().for_each(|item| ranked.items[*item].x = x);
    &column[count..]
}

/// Returns between which centers an item can move without its neighbors in the layer.
fn room(ranked: &Ranked, item: usize, at: usize) -> (f64, f64) {
    let known = &ranked.items[item];
    let rank = &ranked.ranks[known.rank];
    let left = at.checked_sub(1).map(|left| &ranked.items[rank[left]]);
    let right = rank.get(at + 1).map(|right| &ranked.items[*right]);
    let low = left.map_or(f64::MIN, |left| left.x + distance(left, known).ceil() + 1.0);
    let high = right.map_or(f64::MAX, |right| right.x - distance(known, right).ceil() - 1.0);
    // What is there already is possible, whatever rounding does.
    (low.min(known.x), high.max(known.x))
}

/// Returns the columns: items that are below each other by lines that are the heaviest of both of their ends.
fn columns(ranked: &Ranked) -> Vec<Vec<usize>> {
    let heaviest = |neighbors: &[(usize, f64)]| {
        let best = neighbors.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let is_only = neighbors.iter().filter(|other| other.1 >= best.1).count() == 1;
        is_only.then_some(best.0)
    };
    let below =
        |item: usize| heaviest(&ranked.items[item].below).filter(|below| heaviest(&ranked.items[*below].above) == Some(item));
    let mut is_inside = vec![false; ranked.items.len()];
    let mut columns = Vec::new();
    for first in ranked.ranks.iter().flatten() {
        if is_inside[*first] {
            continue;
        }
        let mut column = vec![*first];
        while let Some(next) = below(column[column.len() - 1]) {
            is_inside[next] = true;
            column.push(next);
        }
        if column.len() > 1 {
            columns.push(column);
        }
    }
    columns
}

/// Places the layers below each other. Layers between which lines go far to the side are further apart.
fn stack(ranked: &mut Ranked) {
    let mut y = 0.0;
    for rank in 0..ranked.ranks.len() {
        let items = ranked.ranks[rank].iter().map(|item| &ranked.items[*item]);
        let height = items.clone().map(|item| item.size.height).fold(0.0, f64::max);
        let is_label =
            |rank: usize| ranked.ranks.get(rank).is_some_and(|items| items.iter().all(|item| is_between(&ranked.items[*item])));
        let base = if is_label(rank) || is_label(rank + 1) { LABEL_GAP } else { RANK_GAP };
        let reach = items
            .flat_map(|item| item.below.iter().map(|(below, _)| (ranked.items[*below].x - item.x).abs()))
            .fold(0.0, f64::max);
        ranked.bands.push((y, y + height));
        y += height + (base + (reach - 150.0).max(0.0) * 0.06).min(RANK_GAP_MAX).round();
    }
    make_room(ranked);
}

fn is_between(item: &LayoutItem) -> bool {
    item.is_bend || item.size.height <= super::LABEL_HEIGHT
}

/// Moves layers down where lines beside the layers leave or arrive. They are placed by the numbers of [`super::side`].
fn make_room(ranked: &mut Ranked) {
    let runs = super::side::runs(ranked);
    let mut moved = 0.0;
    for (rank, count) in runs.into_iter().enumerate() {
        ranked.bands[rank].0 += moved;
        ranked.bands[rank].1 += moved;
        moved += count as f64 * RUN_GAP;
    }
}
