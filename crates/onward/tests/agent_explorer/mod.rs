//! All paths of small agents, explored breadth first against the real engine and the real admission.
//!
//! A program is a list of turns, a turn a list of slots. A bit that is not recorded decides which of a slot's two operations the
//! code executes: it is read at each activation, and may have changed since the last one. Activations start from replay. Inputs
//! may arrive between what an activation saw and its commit; the process may die before the commit.

mod explore;
mod judge;
mod mutant;
mod program;
mod recorded_calls;

use explore::{Limits, Walked, explore, walk};
use mutant::Mutant;
use program::Program;

/// Programs that cover one rule each: operations by their letters, `x/y` for `x` or `y` by the bit, and the end of the turn.
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
    ("A/- R X > F", Limits::new(1, 1, 0)),
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
    ("I/U Y/C > N; N/- > F", Limits::new(0, 2, 0)),
    ("C > N; O > F", Limits::new(0, 0, 0).branches(1)),
    ("A > N; Z > F", Limits::new(0, 0, 0).branches(1).entries(1)),
    ("T/- L > F", Limits::new(0, 1, 0)),
];

/// The same with failures, with runs that are taken from their workers, and without a plain loop.
const ROUGH: &[(&str, Limits)] = &[
    ("P/Q L > F", Limits::new(0, 1, 1).failures(1)),
    ("S/B N > F", Limits::new(0, 1, 0).failures(1)),
    ("M/N > F", Limits::new(0, 1, 0).failures(2)),
    ("A/- N > F", Limits::new(0, 1, 0).failures(1)),
    ("S/B a > F", Limits::new(0, 1, 0).failures(1)),
    ("C/O L > F", Limits::new(0, 1, 0).failures(1)),
    ("s L > F", Limits::new(1, 1, 0)),
    ("s P/Q > F", Limits::new(1, 1, 0)),
    ("r/J > F", Limits::new(0, 1, 0).failures(1)),
    ("S/B N > F", Limits::new(0, 1, 0).zombies(1)),
    ("D L > W; D > F", Limits::new(1, 0, 0).zombies(1)),
    ("I/- L > F", Limits::new(0, 1, 0).zombies(1)),
    ("S N/V | D L > F", Limits::new(1, 1, 0)),
    ("R I | L/- > N; L > F", Limits::new(1, 1, 1)),
    ("!S -/B N > N; D L > F", Limits::new(1, 1, 0)),
    ("!D > W; L > F", Limits::new(2, 0, 1)),
];

/// Injected faults, with a program and the rule that they break.
const MUTANTS: &[(Mutant, &str, Limits, &str)] = &[
    (Mutant::LosesMessage, "D > W; D > F", Limits::new(1, 0, 0), "MA1"),
    (Mutant::RepeatsMessage, "D > W; D > F", Limits::new(1, 0, 0), "MA1"),
    (Mutant::SwapsAnswers, "J > F", Limits::new(0, 0, 0), "MA2"),
    (Mutant::AnswersFirst, "T > F", Limits::new(0, 0, 0), "MA2"),
    (Mutant::AdoptsByKind, "S N/V > F", Limits::new(1, 1, 0), "MA2"),
    (Mutant::RepeatsCalls, "S/B N > F", Limits::new(1, 1, 0), "MA3"),
    (Mutant::HidesAttempts, "N/V > F", Limits::new(1, 1, 0), "MA3"),
    (Mutant::KeepsTasks, "N/- L > F", Limits::new(1, 1, 0), "MA3"),
    (Mutant::ResumesByItself, "N/V > F", Limits::new(1, 1, 0), "MA3"),
    (Mutant::HidesFlips, "S/B L > F", Limits::new(1, 1, 0), "MA4"),
    (Mutant::LosesWakeups, "R > F", Limits::new(1, 0, 0), "MA5"),
    (Mutant::LosesAnswer, "L > F", Limits::new(0, 0, 0), "MA5"),
    (Mutant::LosesGuest, "G L > F", Limits::new(0, 0, 0).entries(1), "MA6"),
    (Mutant::RepeatsGuest, "G L > F", Limits::new(0, 0, 0).entries(1), "MA6"),
    (Mutant::LosesEntry, "S L > F", Limits::new(0, 0, 0), "MA7"),
    (Mutant::RepeatsEntry, "S L > F", Limits::new(0, 0, 0), "MA7"),
    (Mutant::LosesAnswer, "C > F", Limits::new(0, 0, 0), "MA5"),
    (Mutant::LosesAnswer, "O > F", Limits::new(0, 0, 0), "MA5"),
    (Mutant::LosesAnswer, "A > F", Limits::new(0, 0, 0), "MA5"),
    (Mutant::AnswersFirst, "C C > F", Limits::new(0, 0, 0), "MA2"),
    (Mutant::AnswersFirst, "O O > F", Limits::new(0, 0, 0), "MA2"),
    (Mutant::AdoptsByKind, "S/B A > F", Limits::new(0, 1, 0), "MA4"),
    (Mutant::RepeatsCalls, "S/B C > F", Limits::new(0, 1, 0), "MA3"),
    (Mutant::RepeatsCalls, "S/B O > F", Limits::new(0, 1, 0), "MA10"),
    (Mutant::RepeatsCalls, "Z/- A > F", Limits::new(0, 1, 0), "MA10"),
    (Mutant::ResumesByItself, "C/- L > F", Limits::new(0, 1, 0), "MA3"),
    (Mutant::ResumesByItself, "A/- N > F", Limits::new(0, 1, 0), "MA3"),
    (Mutant::TakesEveryBranch, "D > W; D > F", Limits::new(1, 0, 0).branches(2), "MA9"),
];

/// An oracle that finds no fault proves nothing.
#[test]
fn what_goes_wrong_on_purpose_is_found() {
    for (mutant, text, limits, rule) in MUTANTS {
        let sound = explore(&Program::parse(text), *limits);
        assert!(sound.found.is_empty(), "{text}\n{}", sound.found.join("\n"));
        let explored = explore(&Program::parse(text), Limits { mutant: Some(*mutant), ..*limits });
        let all = explored.found.join("\n");
        assert!(explored.found.iter().any(|found| found.contains(rule)), "{mutant:?} is not found in {text}\n{all}");
    }
}

#[test]
fn no_way_of_a_picked_program_breaks_a_rule() {
    explore_all(PICKED);
}

#[test]
fn no_way_breaks_a_rule_where_things_fail_or_are_taken_away() {
    explore_all(ROUGH);
}

fn explore_all(programs: &[(&str, Limits)]) {
    let mut states = 0;
    for (text, limits) in programs {
        let explored = explore(&Program::parse(text), *limits);
        assert!(explored.found.is_empty(), "{text}\n{}", explored.found.join("\n"));
        states += explored.states;
    }
    println!("{states} states");
    assert!(states > 5_000, "only {states} states: the model explores next to nothing");
}

/// A program that does not flip is never abandoned, whatever inputs and crashes come in between. Takes each operation twice in
/// each place, and every pair with `ONWARD_CASES`.
#[test]
fn a_deterministic_agent_is_never_abandoned() {
    let pairs_of_each = if std::env::var_os("ONWARD_CASES").is_some() { 7 } else { 2 };
    let seconds = ["H", "D", "L", "M", "A", "X", "C"];
    for (number, first) in ["S", "H", "D", "R", "N", "U", "I"].into_iter().enumerate() {
        for second in seconds.iter().cycle().skip(number).take(pairs_of_each) {
            let text = format!("{first} {second} L > W; D L > F");
            let explored = explore(&Program::parse(&text), Limits::new(1, 0, 1));
            assert!(explored.found.is_empty(), "{text}\n{}", explored.found.join("\n"));
            assert_eq!(explored.abandonments, 0, "{text}");
        }
    }
    // Nor by entries from outside, whenever they arrive.
    for text in ["S L > W; D L > F", "I > N; I L > N; I > F", "G L > W; D G L > F", "N > N; I G > F"] {
        let explored = explore(&Program::parse(text), Limits::new(1, 0, 1).entries(2));
        assert!(explored.found.is_empty(), "{text}\n{}", explored.found.join("\n"));
        assert_eq!(explored.abandonments, 0, "{text}");
    }
}

/// Code that differs each time is paused, and does not cause a model call at every wake.
#[test]
fn an_agent_that_never_repeats_itself_is_paused() {
    let explored = explore(&Program::parse("K L > F"), Limits { clock: true, ..Limits::new(0, 5, 0) });
    assert!(explored.found.is_empty(), "{}", explored.found.join("\n"));
    assert!(explored.unstable > 0, "nothing was paused as unstable");
}

/// Number of random programs; `ONWARD_CASES` overrides it, and `cargo xtask torture` has 200,000.
const CASES: u64 = 2_000;

/// Random programs on random paths, with up to nine flips each.
#[test]
fn no_random_program_breaks_a_rule() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, cases) = (number("ONWARD_SEED"), number("ONWARD_CASES").unwrap_or(CASES));
    let seeds = first.map_or(0..cases, |seed| seed..seed + 1);
    let walked = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            scope.spawn({
                let seeds = seeds.clone();
                move || seeds.skip(half).step_by(2).map(walk_random).collect::<Vec<Walked>>()
            })
        });
        halves.map(|half| half.join().expect("no program breaks a rule")).concat()
    });
    let closed = walked.iter().filter(|walked| walked.is_closed).count();
    let abandoned: usize = walked.iter().map(|walked| walked.abandonments).sum();
    println!("{closed} closed, {abandoned} abandonments");
    assert!(first.is_some() || abandoned as u64 > cases / 4, "only {abandoned} abandonments in {cases} programs");
}

fn walk_random(seed: u64) -> Walked {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let text = random_program(&mut dice);
    let limits = Limits::new(dice.below(4) as u32, dice.below(10) as u32, dice.below(4) as u32);
    let limits = limits.entries(dice.below(4) as u32).branches(dice.below(3) as u32);
    let limits = limits.failures(dice.below(3) as u32).zombies(u32::from(dice.below(4) == 0));
    let limits = Limits { resumes: 1 + dice.below(2) as u32, ..limits };
    walk(&Program::parse(&text), limits, |count| dice.below(count))
        .unwrap_or_else(|found| panic!("ONWARD_SEED={seed} {limits:?}\n{text}\n{found}"))
}

/// Returns one to three turns of one to four slots; some programs have code before their loop, and some have no loop.
fn random_program(dice: &mut Dice) -> String {
    const LETTERS: &[u8] = b"-SBUHDRLPQNVMJTXAaICOZEYGsrj";
    let letter = |dice: &mut Dice| char::from(LETTERS[dice.below(LETTERS.len())]);
    let slots = |count: usize, dice: &mut Dice| {
        (0..count).map(|_| format!("{}/{}", letter(dice), letter(dice))).collect::<Vec<_>>().join(" ")
    };
    let turns = 1 + dice.below(3);
    let turn = |number: usize, dice: &mut Dice| {
        let slots = slots(1 + dice.below(4), dice);
        let end = if number + 1 == turns { 'F' } else { ['N', 'W'][dice.below(2)] };
        format!("{slots} > {end}")
    };
    let before = match dice.below(8) {
        0 => "!".to_owned(),
        1 | 2 => format!("{} | ", slots(1 + dice.below(2), dice)),
        _ => String::new(),
    };
    before + &(0..turns).map(|number| turn(number, dice)).collect::<Vec<_>>().join("; ")
}

/// Seeded randomness.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % count
    }
}
