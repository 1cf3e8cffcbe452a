//! Exploration of every reachable state, the shortest path to a violation, and the check that the run can end from every state.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;

use crate::actions::Action;
use crate::decide::Violation;
use crate::guards::{Guard, Rules};
use crate::world::{Scenario, World};

/// Statistics of an exploration.
pub struct Explored {
    pub states: usize,
    pub steps: usize,
    pub ends: usize,
}

/// The shortest path to a violation.
pub struct Counterexample {
    pub broken: Violation,
    pub trace: Vec<Action>,
    pub states: usize,
}

impl std::fmt::Display for Counterexample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = format!("{} (after {} states)\n", self.broken, self.states);
        for (number, action) in self.trace.iter().enumerate() {
            writeln!(text, "  {:2}. {action:?}", number + 1)?;
        }
        f.write_str(&text)
    }
}

/// The first path to each state, and the steps without a fault.
#[derive(Default)]
struct Map {
    numbers: HashMap<u128, u32>,
    came: Vec<Option<(u32, Action)>>,
    faultless: Vec<(u32, u32)>,
    ends: Vec<u32>,
}

impl Map {
    /// Returns the number of a state, and whether it is new.
    fn number(&mut self, world: &World, alike: bool, came: Option<(u32, Action)>) -> (u32, bool) {
        let next = u32::try_from(self.came.len()).expect("so many states do not fit into memory");
        let number = *self.numbers.entry(world.fingerprint(alike)).or_insert(next);
        if number == next {
            self.came.push(came);
            if world.is_over() {
                self.ends.push(number);
            }
        }
        (number, number == next)
    }

    fn trace(&self, mut to: u32, last: Option<Action>) -> Vec<Action> {
        let mut actions: Vec<Action> = last.into_iter().collect();
        while let Some((from, action)) = self.came[to as usize] {
            actions.push(action);
            to = from;
        }
        actions.reverse();
        actions
    }

    /// Returns the first state from which the run cannot end without further faults.
    fn stuck(&self) -> Option<u32> {
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.came.len()];
        self.faultless.iter().for_each(|(from, to)| before[*to as usize].push(*from));
        let mut ends = vec![false; self.came.len()];
        let mut open = self.ends.clone();
        self.ends.iter().for_each(|end| ends[*end as usize] = true);
        while let Some(state) = open.pop() {
            for from in &before[state as usize] {
                if !std::mem::replace(&mut ends[*from as usize], true) {
                    open.push(*from);
                }
            }
        }
        ends.iter().position(|ends| !ends).map(|state| u32::try_from(state).expect("it was a number before"))
    }
}

/// Explores all states breadth first.
pub fn explore(rules: Rules, scenario: Scenario) -> Result<Explored, Counterexample> {
    let (mut map, mut steps) = (Map::default(), 0);
    // A server whose clock is off is not interchangeable with the other.
    let alike = rules.has(Guard::DatabaseClock) && rules.has(Guard::TimerClock);
    let first = World::new(scenario);
    let (number, _) = map.number(&first, alike, None);
    let mut open = VecDeque::from([(number, first)]);
    while let Some((from, world)) = open.pop_front() {
        for action in world.actions(rules, scenario) {
            steps += 1;
            let next = world.after(rules, scenario, action).map_err(|broken| {
                let trace = map.trace(from, Some(action));
                Counterexample { broken, trace, states: map.came.len() }
            })?;
            let (to, is_new) = map.number(&next, alike, Some((from, action)));
            if !action.is_fault() {
                map.faultless.push((from, to));
            }
            if is_new {
                open.push_back((to, next));
            }
        }
    }
    if let Some(stuck) = map.stuck() {
        let broken = "from here the run cannot end, even without further faults".to_owned();
        return Err(Counterexample { broken, trace: map.trace(stuck, None), states: map.came.len() });
    }
    Ok(Explored { states: map.came.len(), steps, ends: map.ends.len() })
}
