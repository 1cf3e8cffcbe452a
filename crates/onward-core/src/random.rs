//! Random numbers that need no recording: derived from a run's seed and a call id.
//!
//! Must never change its results: replay needs the same numbers, and so do generators in other languages.
//!
//! Invariants of generators:
//! - RN1: the 64 bits are those of SplitMix64 with the seed as its first state.
//! - RN2: an integer of a range with `size` numbers is its lowest plus `bits % size`; bits below `2^64 % size`, which would favor
//!   low numbers, are drawn again.
//! - RN3: a float is the upper 53 bits, divided by 2^53, and a chance is `float < probability`.
//! - RN4: a choice is an integer that indexes the list; a shuffle exchanges each place from the last to the second with one up to
//!   it.

use std::ops::{Bound, RangeBounds};

use crate::{CallId, Hash};

/// Derives the `counter`-th 64 random bits of the call at `call_id`.
pub fn derive(seed: u64, call_id: &CallId, counter: u64) -> u64 {
    let path: Vec<u8> = call_id.path().flat_map(u32::to_le_bytes).collect();
    let hash = Hash::of_parts(&[&seed.to_le_bytes(), &path, &counter.to_le_bytes()]);
    let (low, _) = hash.0.split_at(8);
    u64::from_le_bytes(low.try_into().expect("8 of 16 bytes"))
}

/// Derives a version 4 UUID for the call at `call_id`.
pub fn uuid(seed: u64, call_id: &CallId) -> [u8; 16] {
    let (high, low) = (derive(seed, call_id, 0), derive(seed, call_id, 1));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_le_bytes());
    bytes[8..].copy_from_slice(&low.to_le_bytes());
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// An integer that a [`RandomGenerator`] can draw.
pub trait RandomInteger: Copy + sealed::Integer {}

mod sealed {
    pub trait Integer: Sized {
        const MIN: i128;
        const MAX: i128;
        fn widen(self) -> i128;
        /// Converts a number between `MIN` and `MAX`.
        fn narrow(number: i128) -> Self;
    }
}

macro_rules! random_integers {
    ($($integer:ty)*) => {$(
        impl sealed::Integer for $integer {
            const MIN: i128 = <$integer>::MIN as i128;
            const MAX: i128 = <$integer>::MAX as i128;
            fn widen(self) -> i128 {
                self as i128
            }
            fn narrow(number: i128) -> $integer {
                <$integer>::try_from(number).expect("the number is in the range of the type")
            }
        }
        impl RandomInteger for $integer {}
    )*};
}

random_integers!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize);

/// A generator of random numbers from a seed. The same seed gives the same numbers in every language and version.
#[derive(Debug, Clone)]
pub struct RandomGenerator {
    state: u64,
}

impl RandomGenerator {
    /// Creates the generator of a seed.
    pub fn new(seed: u64) -> RandomGenerator {
        RandomGenerator { state: seed }
    }

    /// Draws 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31) // RN1
    }

    /// Draws an integer of the range, each with the same probability: `generator.integer(1..=6)`.
    ///
    /// # Panics
    /// Panics if the range is empty.
    pub fn integer<T: RandomInteger>(&mut self, range: impl RangeBounds<T>) -> T {
        let low = match range.start_bound() {
            Bound::Included(low) => low.widen(),
            Bound::Excluded(before) => before.widen() + 1,
            Bound::Unbounded => T::MIN,
        };
        let high = match range.end_bound() {
            Bound::Included(last) => last.widen(),
            Bound::Excluded(high) => high.widen() - 1,
            Bound::Unbounded => T::MAX,
        };
        assert!(low <= high, "the range of a random integer is empty");
        T::narrow(low + i128::from(self.below((high - low + 1) as u128)))
    }

    /// Draws a number below `size`, which is between 1 and 2^64.
    fn below(&mut self, size: u128) -> u64 {
        let Ok(size) = u64::try_from(size) else { return self.bits() };
        let unfair = size.wrapping_neg() % size; // 2^64 % size
        loop {
            let bits = self.bits();
            if bits >= unfair {
                return bits % size; // RN2
            }
        }
    }

    /// Draws a number from 0 up to, but not including, 1.
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub fn float(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64 // RN3
    }

    /// Returns true with this probability: 0 is never, 1 is always.
    ///
    /// # Panics
    /// Panics if the probability is not between 0 and 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        assert!((0.0..=1.0).contains(&probability), "a probability is between 0 and 1, not {probability}");
        self.float() < probability
    }

    /// Draws an item, each with the same probability; `None` if there are none.
    pub fn choice<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() {
            return None;
        }
        let index = self.integer(0..items.len());
        items.get(index) // RN4
    }

    /// Brings the items into a random order, each with the same probability.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for place in (1..items.len()).rev() {
            items.swap(place, self.integer(0..=place)); // RN4
        }
    }
}

#[cfg(test)]
mod tests;
