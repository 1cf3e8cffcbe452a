//! Merging of ordered lists.

use std::collections::VecDeque;

use onward_store::PAGE_DEFAULT;

/// Merges lists up to `limit` rows: repeatedly takes the smallest of their first rows. Rows of one list keep their order,
/// whatever their keys.
pub fn merge<T, K: Ord>(lists: Vec<Vec<T>>, limit: usize, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut lists: Vec<VecDeque<T>> = lists.into_iter().map(VecDeque::from).collect();
    let mut merged = Vec::new();
    while merged.len() < limit {
        let first = lists.iter().enumerate().filter_map(|(position, list)| Some((key(list.front()?), position))).min();
        let Some((_, position)) = first else { break };
        merged.extend(lists[position].pop_front());
    }
    merged
}

/// Takes one row of each list in turn, up to `limit`.
pub fn take_turns<T>(lists: Vec<Vec<T>>, limit: usize) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut taken = Vec::new();
    loop {
        let before = taken.len();
        taken.extend(lists.iter_mut().filter_map(Iterator::next));
        if taken.len() == before || taken.len() >= limit {
            taken.truncate(limit);
            return taken;
        }
    }
}

pub fn page(limit: usize) -> usize {
    if limit == 0 { PAGE_DEFAULT } else { limit }
}

/// Splits `limit` into parts that differ by one at most, the larger ones first.
pub fn parts(limit: usize, count: usize) -> Vec<usize> {
    (0..count).map(|position| limit / count + usize::from(position < limit % count)).collect()
}

#[cfg(test)]
mod tests;
