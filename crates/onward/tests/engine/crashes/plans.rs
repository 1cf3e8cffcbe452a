//! Plans of deaths: every point, every pair of points, or some of them.

use std::time::{Duration, Instant, SystemTime};

use super::dying::Death;
use super::stage::Calls;

/// A sequence of deaths.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub first: Vec<Death>,
    pub second: Vec<Death>,
    pub server: Vec<Death>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    First,
    Second,
    Server,
}

impl Plan {
    fn with(mut self, who: Who, death: Death) -> Plan {
        match who {
            Who::First => self.first.push(death),
            Who::Second => self.second.push(death),
            Who::Server => self.server.push(death),
        }
        self
    }

    /// Returns the plan with every death at an earlier call; `None` if there is none.
    pub fn earlier(&self) -> Option<Plan> {
        let halved = |deaths: &[Death]| deaths.iter().map(|death| Death { at: death.at / 2, ..*death }).collect();
        let plan = Plan { first: halved(&self.first), second: halved(&self.second), server: halved(&self.server) };
        (plan != *self).then_some(plan)
    }

    pub fn deaths(&self) -> usize {
        self.first.len() + self.second.len() + self.server.len()
    }
}

/// The calls of a test without a death: of the two processes and of the server. With a server, the processes die while it is at
/// its calls.
#[derive(Debug)]
pub struct Counted {
    pub calls: [Calls; 3],
}

impl Counted {
    fn has_server(&self) -> bool {
        self.calls[2].steps > 0
    }

    fn steps(&self, who: Who) -> u64 {
        match who {
            Who::First if !self.has_server() => self.calls[0].steps,
            Who::Second if !self.has_server() => self.calls[1].steps,
            _ => self.calls[2].steps,
        }
    }

    /// Returns all processes, with the server if there is one.
    fn all(&self) -> &'static [Who] {
        if self.has_server() { &[Who::First, Who::Second, Who::Server] } else { &[Who::First, Who::Second] }
    }

    fn singles_of(&self, who: Who) -> Vec<Plan> {
        deaths(self.steps(who)).map(|death| Plan::default().with(who, death)).collect()
    }

    /// Plans one death of each process that opens the store, before or after each of its steps.
    pub fn singles(&self) -> Vec<Plan> {
        let mortal = self.all().iter().filter(|who| !self.has_server() || **who == Who::Server);
        mortal.flat_map(|who| self.singles_of(*who)).collect()
    }

    /// Plans one death of each worker of the server, before or after each step of the server.
    pub fn singles_beside_the_server(&self) -> Vec<Plan> {
        [Who::First, Who::Second].into_iter().flat_map(|who| self.singles_of(who)).collect()
    }

    /// Plans every pair of deaths, of one process or of two.
    pub fn doubles(&self) -> Vec<Plan> {
        let mut plans = Vec::new();
        for (position, &who) in self.all().iter().enumerate() {
            for first in deaths(self.steps(who)) {
                let plan = Plan::default().with(who, first);
                // A second incarnation has about as many steps as the first one left.
                plans.extend(deaths(self.steps(who) - first.at).map(|second| plan.clone().with(who, second)));
                for &other in &self.all()[position + 1..] {
                    plans.extend(deaths(self.steps(other)).map(|second| plan.clone().with(other, second)));
                }
            }
        }
        plans
    }

    /// Plans deaths at the first calls of every operation that is not a step: reads and periodic calls.
    pub fn singles_of_others(&self) -> Vec<Plan> {
        let mut plans = Vec::new();
        for (who, calls) in [Who::First, Who::Second, Who::Server].into_iter().zip(&self.calls) {
            for (&name, &count) in &calls.others {
                let at = (0..count.min(4)).flat_map(|at| [false, true].map(|is_done| Death { among: Some(name), at, is_done }));
                plans.extend(at.map(|death| Plan::default().with(who, death)));
            }
        }
        plans
    }
}

fn deaths(steps: u64) -> impl Iterator<Item = Death> {
    (0..steps).flat_map(|at| [false, true].map(|is_done| Death::step(at, is_done)))
}

/// A random choice; `ONWARD_SEED` repeats one, `ONWARD_CASES` sets their number. `ONWARD_TORTURE_MINUTES` executes all plans
/// while there is time, starting from `ONWARD_TORTURE_SEED`.
pub struct Chance {
    seed: u64,
    cases: Option<u64>,
    pub until: Option<Instant>,
}

impl Chance {
    pub fn new() -> Chance {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
        let fresh = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = number("ONWARD_SEED").or_else(|| number("ONWARD_TORTURE_SEED")).unwrap_or_else(fresh);
        println!("reproduce with ONWARD_SEED={seed}");
        let until = number("ONWARD_TORTURE_MINUTES").map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
        Chance { seed: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, cases: number("ONWARD_CASES"), until }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % limit
    }

    /// Returns so many of the plans in random order; all of them if there is a time limit.
    pub fn some(&mut self, usual: u64, mut plans: Vec<Plan>) -> Vec<Plan> {
        let all = plans.len() as u64;
        let cases = if self.until.is_some() { all } else { self.cases.unwrap_or(usual).min(all) };
        for position in 0..cases {
            let other = position + self.below(all - position);
            plans.swap(position as usize, other as usize);
        }
        plans.truncate(cases as usize);
        println!("{cases} of {all} plans");
        plans
    }
}
