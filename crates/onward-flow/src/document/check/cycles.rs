//! Steps that repeat without a wait or a call: a run would be stuck in them.

use super::Checker;
use super::steps::{Listed, Steps, Ways};
use crate::document::problem::Problem;

impl<'a> Checker<'a, '_> {
    pub fn cycles(&mut self, steps: &Steps<'a>, ways: &[Ways]) {
        let is_free = |listed: &Listed| {
            let step = listed.step;
            !listed.unclear && (step.set.is_some() || step.switch.is_some() || step.parallel.is_some())
        };
        let targets = |id: usize| -> Vec<usize> {
            let listed = &steps.all[id];
            if !is_free(listed) {
                return Vec::new();
            }
            let mut targets = ways[id].targets(listed.following);
            if listed.step.when.is_some() {
                targets.extend(listed.following);
            }
            targets.retain(|target| is_free(&steps.all[*target]));
            targets
        };
        let graph: Vec<Vec<usize>> = (0..steps.all.len()).map(targets).collect();
        for cycle in cycles(&graph) {
            let Some(first) = cycle.first() else { continue };
            let names: Vec<String> = cycle.iter().take(5).map(|id| format!("`{}`", steps.all[*id].step.name)).collect();
            let more = if cycle.len() > names.len() { " and others" } else { "" };
            let message = format!("the steps {}{more} repeat without a wait or a call", names.join(", "));
            let listed = &steps.all[*first];
            let problem = Problem::error("cycle_without_wait", &listed.place.field_or_self("name"), message);
            self.problems.add(problem.hint("add a step that waits or calls, `sleep: 1s` for example").of_step(&listed.step.name));
        }
    }
}

/// Returns the sets of nodes that reach each other, in order. Needs no recursion: graphs of documents may be deep.
fn cycles(graph: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let order = finished(graph, &(0..graph.len()).collect::<Vec<_>>(), &mut |_| {});
    let mut reversed = vec![Vec::new(); graph.len()];
    for (from, targets) in graph.iter().enumerate() {
        targets.iter().for_each(|to| reversed[*to].push(from));
    }
    let latest: Vec<usize> = order.into_iter().rev().collect();
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut parts: Vec<usize> = Vec::new();
    finished(&reversed, &latest, &mut |size| parts.push(size));
    let nodes = finished(&reversed, &latest, &mut |_| {});
    let mut from = 0;
    for end in parts {
        let mut part = nodes[from..end].to_vec();
        part.sort_unstable();
        if part.len() > 1 || part.first().is_some_and(|node| graph[*node].contains(node)) {
            found.push(part);
        }
        from = end;
    }
    found.sort();
    found
}

/// Returns the nodes in the order in which a depth-first search leaves them. Calls `at_end` after the search from each root.
fn finished(graph: &[Vec<usize>], roots: &[usize], at_end: &mut dyn FnMut(usize)) -> Vec<usize> {
    let (mut seen, mut order) = (vec![false; graph.len()], Vec::with_capacity(graph.len()));
    for root in roots {
        if std::mem::replace(&mut seen[*root], true) {
            continue;
        }
        let mut open = vec![(*root, 0)];
        while let Some((node, at)) = open.last_mut() {
            match graph[*node].get(*at) {
                Some(next) => {
                    *at += 1;
                    if !std::mem::replace(&mut seen[*next], true) {
                        open.push((*next, 0));
                    }
                }
                None => {
                    order.push(*node);
                    open.pop();
                }
            }
        }
        at_end(order.len());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_nodes_that_reach_each_other() {
        let graph = [vec![1], vec![2], vec![1, 3], vec![4], vec![4], vec![0]];
        assert_eq!(cycles(&graph), [vec![1, 2], vec![4]]);
        let long: Vec<Vec<usize>> = (0..100_000).map(|n| vec![(n + 1) % 100_000]).collect();
        assert_eq!(cycles(&long).len(), 1);
    }
}
