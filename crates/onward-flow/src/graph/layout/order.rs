//! Orders the items of each layer so that few lines cross.

use super::Ranked;

/// The number of sweeps over all layers, down and up.
const SWEEPS: usize = 10;
/// The number of sweeps over large graphs.
const SWEEPS_LARGE: usize = 4;
/// The number of items from which a graph is large.
const LARGE: usize = 5_000;

/// Orders all layers: the best order of several sweeps, each of which moves the items toward the middle of their neighbors.
pub fn arrange(ranked: &mut Ranked) {
    let mut position = begin(ranked);
    let mut best = (crossings(ranked, &position), ranked.ranks.clone());
    let sweeps = if ranked.items.len() > LARGE { SWEEPS_LARGE } else { SWEEPS };
    for sweep in 0..sweeps {
        if best.0 == 0 {
            break;
        }
        let is_down = sweep % 2 == 0;
        let count = ranked.ranks.len();
        for step in 1..count {
            let rank = if is_down { step } else { count - 1 - step };
            sort(ranked, rank, is_down, &mut position);
        }
        let crossings = crossings(ranked, &position);
        if crossings < best.0 {
            best = (crossings, ranked.ranks.clone());
        }
    }
    ranked.ranks = best.1;
}

/// Orders each layer by the layer above it, then by number, so that the order of the document decides.
fn begin(ranked: &mut Ranked) -> Vec<usize> {
    let mut position = vec![0; ranked.items.len()];
    for rank in 0..ranked.ranks.len() {
        let mut items = std::mem::take(&mut ranked.ranks[rank]);
        items.sort_by_cached_key(|item| {
            let above = ranked.items[*item].above.iter().map(|(above, _)| position[*above]).min();
            (above.unwrap_or(usize::MAX), ranked.items[*item].is_bend, *item)
        });
        items.iter().enumerate().for_each(|(at, item)| position[*item] = at);
        ranked.ranks[rank] = items;
    }
    position
}

fn sort(ranked: &mut Ranked, rank: usize, is_down: bool, position: &mut [usize]) {
    let mut items = std::mem::take(&mut ranked.ranks[rank]);
    let mut keyed: Vec<(f64, usize)> = items.iter().map(|item| (middle(ranked, *item, is_down, position), *item)).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0)); // stable: equal items keep their order
    for (at, (_, item)) in keyed.into_iter().enumerate() {
        items[at] = item;
        position[item] = at;
    }
    ranked.ranks[rank] = items;
}

/// Returns the mean position of the neighbors of an item, or its own.
fn middle(ranked: &Ranked, item: usize, is_down: bool, position: &[usize]) -> f64 {
    let neighbors = if is_down { &ranked.items[item].above } else { &ranked.items[item].below };
    if neighbors.is_empty() {
        return position[item] as f64;
    }
    neighbors.iter().map(|(neighbor, _)| position[*neighbor] as f64).sum::<f64>() / neighbors.len() as f64
}

/// Counts the crossings between all layers.
fn crossings(ranked: &Ranked, position: &[usize]) -> u64 {
    let mut count = 0;
    for (upper, lower) in ranked.ranks.iter().zip(ranked.ranks.iter().skip(1)) {
        let mut tree = vec![0_u64; lower.len() + 1];
        let mut total = 0;
        for item in upper {
            let mut ends: Vec<usize> = ranked.items[*item].below.iter().map(|(below, _)| position[*below]).collect();
            ends.sort_unstable();
            count += ends.iter().map(|end| total - sum(&tree, *end + 1)).sum::<u64>();
            for end in ends {
                add(&mut tree, end + 1);
                total += 1;
            }
        }
    }
    count
}

/// Adds one to a Fenwick tree.
fn add(tree: &mut [u64], mut at: usize) {
    while at < tree.len() {
        tree[at] += 1;
        at += at & at.wrapping_neg();
    }
}

/// Returns the sum of the first `at` entries of a Fenwick tree.
fn sum(tree: &[u64], mut at: usize) -> u64 {
    let mut total = 0;
    while at > 0 {
        total += tree[at];
        at -= at & at.wrapping_neg();
    }
    total
}
