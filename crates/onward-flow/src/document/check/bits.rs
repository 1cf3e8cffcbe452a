//! Sets of small numbers.

/// A set of numbers below a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub fn none(size: usize) -> Bits {
        Bits { words: vec![0; size.div_ceil(64)] }
    }

    pub fn all(size: usize) -> Bits {
        Bits { words: vec![u64::MAX; size.div_ceil(64)] }
    }

    pub fn insert(&mut self, number: usize) {
        self.words[number / 64] |= 1 << (number % 64);
    }

    pub fn remove(&mut self, number: usize) {
        self.words[number / 64] &= !(1 << (number % 64));
    }

    pub fn contains(&self, number: usize) -> bool {
        self.words[number / 64] & (1 << (number % 64)) != 0
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Keeps what is in both; whether something has changed.
    pub fn intersect(&mut self, other: &Bits) -> bool {
        self.merge(other, |a, b| a & b)
    }

    /// Adds what is in the other; whether something has changed.
    pub fn unite(&mut self, other: &Bits) -> bool {
        self.merge(other, |a, b| a | b)
    }

    fn merge(&mut self, other: &Bits, with: impl Fn(u64, u64) -> u64) -> bool {
        let mut changed = false;
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            let merged = with(*word, *other);
            changed |= merged != *word;
            *word = merged;
        }
        changed
    }
}
