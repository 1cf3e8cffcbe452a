//! A worker process, killed at every failpoint and at random times, until all of its work is done.
//!
//! After every kill, [`judge`] compares the logs on disk with the executions and acknowledgements in the side file. The default
//! run is short. `ONWARD_TORTURE_MINUTES=n` sets the length of the random part, `ONWARD_TORTURE_SEED=n` repeats one.

mod arena;
mod judge;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use onward_store_embedded::FAILPOINTS;

use arena::{Arena, Ended};

/// Default length of the random part.
const RANDOM: Duration = Duration::from_secs(10);

/// A load that writes enough for several checkpoints.
const HEAVY: (u64, usize) = (24, 1_500_000);

/// A load for everything else.
const LIGHT: (u64, usize) = (6, 100);

/// Kills at the first, second and third pass of each failpoint.
#[test]
fn killed_at_every_failpoint_nothing_is_lost_or_done_twice() {
    let (mut met, mut kills) = (BTreeSet::new(), 0);
    for point in FAILPOINTS {
        for count in 1..=3 {
            let (runs, large) = if point.contains("checkpoint") { HEAVY } else { LIGHT };
            let mut arena = Arena::new(runs, large);
            if arena.life(Some(&format!("{point}:{count}")), None) == Ended::Killed {
                met.insert(*point);
                kills += 1;
            }
            arena.finish();
        }
    }
    println!("{kills} kills at {} failpoints", met.len());
    let missed: Vec<&&str> = FAILPOINTS.iter().filter(|point| !met.contains(*point)).collect();
    assert!(missed.is_empty(), "never met: {missed:?}");
}

/// Several kills at failpoints in one directory: recovery is interrupted too.
#[test]
fn killed_again_while_it_recovers_nothing_is_lost_or_done_twice() {
    let mut arena = Arena::new(LIGHT.0, LIGHT.1);
    for point in FAILPOINTS.iter().cycle().take(3 * FAILPOINTS.len()) {
        if arena.life(Some(&format!("{point}:2")), None) == Ended::Done {
            break;
        }
    }
    arena.finish();
}

#[test]
fn killed_at_random_moments_nothing_is_lost_or_done_twice() {
    let seed = std::env::var("ONWARD_TORTURE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(fresh_seed);
    let minutes = std::env::var("ONWARD_TORTURE_MINUTES").ok().and_then(|text| text.parse::<f64>().ok());
    let budget = minutes.map_or(RANDOM, |minutes| Duration::from_secs_f64(minutes * 60.0));
    println!("ONWARD_TORTURE_SEED={seed}, for {budget:?}");
    let mut chance = Chance::new(seed);
    let end = Instant::now() + budget;
    let (mut kills, mut rounds) = (0, 0);
    while Instant::now() < end {
        let mut arena = Arena::new(4 + chance.below(20), 100);
        while arena.life(None, Some(chance.moment())) == Ended::Killed {
            kills += 1;
        }
        arena.finish();
        rounds += 1;
    }
    println!("{kills} kills in {rounds} rounds");
    assert!(kills > rounds, "most processes should be killed: {kills} kills in {rounds} rounds");
}

pub fn fresh_seed() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A seeded random number generator.
#[derive(Clone)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Returns a random delay, mostly in the middle of the work, sometimes at its start.
    fn moment(&mut self) -> Duration {
        let longest = [20, 120, 400][self.below(3) as usize];
        Duration::from_micros(self.below(longest * 1_000))
    }
}
