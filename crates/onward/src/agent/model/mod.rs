//! Every way in which small agents can go, explored breadth first against the real engine and the real admission.
//!
//! A program is a list of turns, a turn a list of slots. Which of a slot's two operations the code does, a bit decides that nobody
//! records: it is read at each activation, and each activation may find it changed. Activations are cold. Between what an activation saw
//! and what it commits, inputs may land; the process may die before the commit.

mod asked;
mod explore;
mod judge;
mod program;

use explore::{Limits, explore, walk};
use program::Program;

/// Programs in the shape of what each rule is about: operations by their letters, `x/y` for `x` or `y` by the bit, and how the turn ends.
const PICKED: &[(&str, Limits)] = &[
    ("D -/B L > W; D L > F", Limits::new(2, 1, 0)),
    ("S R/- D L > W; D L > F", Limits::new(2, 1, 0)),
    ("H -/B D L > N; D L > F", Limits::new(1, 1, 1)),
    ("S D/R L > W; D L > F", Limits::new(1, 1, 1)),
    ("S -/B D L L > F", Limits::new(1, 1, 0)),
    ("S N/V > W; D L > F", Limits::new(1, 1, 1)),
    ("S -/B N > N; L > F", Limits::new(0, 2, 1)),
    ("N/- L > W; D L > F", Limits::new(1, 1, 0)),
    ("M/N N/M > N; L > F", Limits::new(0, 1, 1)),
    ("N N > F", Limits::new(0, 0, 1)),
    ("N > N; N L > F", Limits::new(0, 1, 1)),
    ("X/B L > N; L > F", Limits::new(0, 2, 1)),
    ("A/- L > W; D L > F", Limits::new(1, 1, 0)),
    ("S/B A N > N; L > F", Limits::new(0, 1, 0)),
    ("A A > F", Limits::new(0, 0, 1)),
    ("A > N; A L > F", Limits::new(0, 0, 1)),
    ("U -/B U L > F", Limits::new(0, 2, 1)),
    ("P/L J > F", Limits::new(0, 1, 0)),
    ("J N/P L > F", Limits::new(0, 1, 0)),
    ("P/- R/- > W; D L > F", Limits::new(1, 1, 0)),
    ("R P/- > F", Limits::new(1, 2, 0)),
    ("I/- L > F", Limits::new(0, 2, 1)),
    ("S -/B I I > F", Limits::new(0, 2, 1)),
    ("I N/V > F", Limits::new(0, 2, 0)),
    ("C/- L > F", Limits::new(0, 2, 1)),
    ("S -/B C > F", Limits::new(0, 1, 1)),
    ("O/- L > F", Limits::new(0, 2, 1)),
    ("-/B O > F", Limits::new(0, 1, 1)),
    ("Z/- L > F", Limits::new(0, 2, 1)),
    ("S -/B E L > F", Limits::new(1, 1, 0)),
    ("Y L > F", Limits::new(0, 2, 0)),
    ("D -/B L > W; D L > F", Limits::new(1, 1, 0).entries(2)),
    ("S -/B L > N; L > W; D L > F", Limits::new(1, 1, 0).entries(1)),
    ("I/- L > N; I L > F", Limits::new(0, 1, 1).entries(1)),
    ("G/- L > W; D G L > F", Limits::new(1, 1, 0).entries(1)),
    ("-/G I G L > F", Limits::new(0, 2, 1).entries(2)),
    ("D > W; D > F", Limits::new(2, 0, 0).branches(1)),
    ("D > W; D > F", Limits::new(1, 0, 1).branches(2)),
    ("R/- > N; L > F", Limits::new(1, 1, 0).branches(1)),
    ("D N > F", Limits::new(1, 0, 0).branches(1)),
    ("I > N; X > F", Limits::new(0, 0, 1).branches(1)),
    ("C > N; O > F", Limits::new(0, 0, 0).branches(1)),
    ("A > N; Z > F", Limits::new(0, 0, 0).branches(1).entries(1)),
];

#[test]
fn no_way_of_a_picked_program_breaks_a_rule() {
    let mut states = 0;
    for (text, limits) in PICKED {
        let explored = explore(&Program::parse(text), *limits);
        assert!(explored.found.is_empty(), "{text}\n{}", explored.found.join("\n"));
        states += explored.states;
    }
    println!("{states} states");
    assert!(states > 5_000, "only {states} states: the model explores next to nothing");
}

/// A program that does not flip is never abandoned, whatever lands and dies in between.
#[test]
fn a_deterministic_agent_is_never_abandoned() {
    for first in ["S", "H", "D", "R", "N", "U", "I"] {
        for second in ["H", "D", "L", "M", "A", "X", "C"] {
            let text = format!("{first} {second} L > W; D L > F");
            let explored = explore(&Program::parse(&text), Limits::new(1, 0, 1));
            assert!(explored.found.is_empty(), "{text}\n{}", explored.found.join("\n"));
            assert_eq!(explored.abandonments, 0, "{text}");
        }
    }
    // Nor by what others append, whenever that lands.
    for text in ["S L > W; D L > F", "I > N; I L > N; I > F", "G L > W; D G L > F", "N > N; I G > F"] {
        let explored = explore(&Program::parse(text), Limits::new(1, 0, 1).entries(2));
        assert!(explored.found.is_empty(), "{text}\n{}", explored.found.join("\n"));
        assert_eq!(explored.abandonments, 0, "{text}");
    }
}

/// Code that says something else each time is stopped, and does not buy a model call at every wake.
#[test]
fn an_agent_that_never_repeats_itself_is_paused() {
    let explored = explore(&Program::parse("K L > F"), Limits { clock: true, ..Limits::new(0, 5, 0) });
    assert!(explored.found.is_empty(), "{}", explored.found.join("\n"));
    assert!(explored.unstable > 0, "nothing was paused as unstable");
}

/// How many random programs are tried; `ONWARD_CASES` says otherwise.
const CASES: u64 = 20_000;

/// Random programs on random ways, with up to nine flips each.
#[test]
fn no_random_program_breaks_a_rule() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, cases) = (number("ONWARD_SEED"), number("ONWARD_CASES").unwrap_or(CASES));
    let seeds = first.map_or(0..cases, |seed| seed..seed + 1);
    let (mut closed, mut abandoned) = (0, 0);
    for seed in seeds {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let text = random_program(&mut dice);
        let limits = Limits::new(dice.below(4) as u32, dice.below(10) as u32, dice.below(4) as u32);
        let limits = limits.entries(dice.below(4) as u32).branches(dice.below(3) as u32);
        match walk(&Program::parse(&text), limits, |count| dice.below(count)) {
            Ok(walked) => {
                closed += usize::from(walked.is_closed);
                abandoned += walked.abandonments;
            }
            Err(found) => panic!("ONWARD_SEED={seed} {limits:?}\n{text}\n{found}"),
        }
    }
    println!("{closed} closed, {abandoned} abandonments");
    assert!(first.is_some() || abandoned as u64 > cases / 4, "only {abandoned} abandonments in {cases} programs");
}

/// One to three turns of one to four slots.
fn random_program(dice: &mut Dice) -> String {
    const LETTERS: &[u8] = b"-SBUHDRLPQNVMJTXAICOZEYG";
    let letter = |dice: &mut Dice| char::from(LETTERS[dice.below(LETTERS.len())]);
    let turns = 1 + dice.below(3);
    let turn = |number: usize, dice: &mut Dice| {
        let slots: Vec<String> = (0..1 + dice.below(4)).map(|_| format!("{}/{}", letter(dice), letter(dice))).collect();
        let end = if number + 1 == turns { 'F' } else { ['N', 'W'][dice.below(2)] };
        format!("{} > {end}", slots.join(" "))
    };
    (0..turns).map(|number| turn(number, dice)).collect::<Vec<_>>().join("; ")
}

/// Chance from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % count
    }
}
