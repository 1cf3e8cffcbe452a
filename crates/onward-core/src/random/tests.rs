//! The numbers of generators, which must never change.

use super::RandomGenerator;

/// RN1, with the published test vector.
#[test]
fn bits_are_those_of_split_mix_64() {
    let mut generator = RandomGenerator::new(1_234_567);
    let drawn: Vec<u64> = (0..5).map(|_| generator.bits()).collect();
    let published = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
        4_593_380_528_125_082_431,
        16_408_922_859_458_223_821,
    ];
    assert_eq!(drawn, published);
}

/// RN1 to RN4; the packages for Python and TypeScript have the same numbers.
#[test]
fn numbers_of_a_seed_never_change() {
    let mut generator = RandomGenerator::new(42);
    let integers: Vec<i64> = (0..8).map(|_| generator.integer(-3..=6)).collect();
    let float = generator.float();
    let chances: Vec<bool> = (0..8).map(|_| generator.chance(0.25)).collect();
    let choice = generator.choice(&["a", "b", "c"]).copied();
    let mut items = [0, 1, 2, 3, 4, 5, 6, 7];
    generator.shuffle(&mut items);
    assert_eq!(
        format!("{integers:?} {float} {chances:?} {choice:?} {items:?}"),
        "[0, -2, 5, 1, -3, -1, 2, 5] 0.3399310389170206 [false, true, false, false, false, false, true, true] Some(\"a\") \
         [2, 5, 3, 4, 1, 0, 6, 7]"
    );
}

#[test]
fn an_integer_is_in_its_range_and_every_number_of_it_occurs() {
    let mut generator = RandomGenerator::new(7);
    let mut counts = [0u32; 6];
    for _ in 0..6000 {
        counts[usize::from(generator.integer(0u8..6))] += 1;
    }
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    assert_eq!(generator.integer(5u8..=5), 5);
    assert_eq!(generator.integer(i64::MIN..=i64::MIN), i64::MIN);
    let _: u64 = generator.integer(..);
    let _: i64 = generator.integer(..);
}

/// RN2: with a plain remainder, numbers of the lower half would occur twice as often as the others.
#[test]
fn a_range_that_does_not_divide_2_to_the_64_has_no_bias() {
    let mut generator = RandomGenerator::new(3);
    let size = (1u64 << 63) + (1 << 62); // three quarters of 2^64
    let low = (0..4000).filter(|_| generator.integer(0..size) < 1 << 62).count();
    assert!((1200..1470).contains(&low), "{low} of 4000 are in the lowest third");
}

#[test]
#[should_panic(expected = "empty")]
fn an_empty_range_is_refused() {
    RandomGenerator::new(1).integer(3..3);
}

#[test]
fn extreme_probabilities_are_certain() {
    let mut generator = RandomGenerator::new(11);
    assert!((0..1000).all(|_| generator.chance(1.0) && !generator.chance(0.0)));
    assert_eq!(generator.choice::<u8>(&[]), None);
}
