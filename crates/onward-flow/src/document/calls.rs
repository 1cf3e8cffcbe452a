//! The kinds of runs that a flow starts.

use std::collections::BTreeSet;

use super::{Flow, Step};

impl Flow {
    /// Returns the kinds of the children and agents that its steps start. They are fixed: no template changes them.
    pub fn called_kinds(&self) -> BTreeSet<&str> {
        let (mut called, mut lists) = (BTreeSet::new(), vec![&self.steps]);
        while let Some(steps) = lists.pop() {
            for Step { child, agent, parallel, .. } in steps {
                called.extend(child.as_deref().into_iter().chain(agent.as_deref()));
                lists.extend(parallel.iter().flat_map(|branches| branches.values()));
            }
        }
        called
    }
}

#[cfg(test)]
mod tests {
    use crate::document::parse;

    #[test]
    fn the_kinds_that_a_flow_calls_are_those_of_all_its_branches() {
        let text = "flow: f\nsteps:\n  - { name: a, child: greet }\n  - name: b\n    parallel:\n      x:\n        - { name: c, agent: \
                    helper, prompt: hi }\n        - name: d\n          parallel: { y: [{ name: e, child: deep }] }\n  - { name: g, \
                    task: mail }\n";
        let parsed = parse(text, "flow.yaml");
        let flow = parsed.flow.unwrap_or_else(|| panic!("{:?}", parsed.problems));
        assert_eq!(Vec::from_iter(flow.called_kinds()), ["deep", "greet", "helper"]);
    }
}
