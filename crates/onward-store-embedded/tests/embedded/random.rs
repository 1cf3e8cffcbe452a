//! Random numbers for tests: the seed is printed, and `ONWARD_TORTURE_SEED` repeats it.

pub struct Random(u64);

impl Random {
    pub fn seeded(what: &str) -> Random {
        let given = std::env::var("ONWARD_TORTURE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_nanos() as u64
        });
        println!("{what}: ONWARD_TORTURE_SEED={seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Returns whether `cargo xtask torture` runs the tests: then everything is tried, not a sample.
pub fn is_torture() -> bool {
    std::env::var_os("ONWARD_TORTURE_MINUTES").is_some()
}

/// Returns the number of random choices of a test.
pub fn rounds(sample: u64, torture: u64) -> u64 {
    if is_torture() { torture } else { sample }
}
