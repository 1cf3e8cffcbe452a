//! Mutated bytes for decoders (S35): each test gives samples that its decoder accepts, and gets them back damaged.
//!
//! The decoder must not panic, and must not allocate for lengths that the bytes only promise. What it accepts must be equal after
//! encoding and decoding it again; the test itself checks that, since only it knows the encoding.
//!
//! A test takes a second or two. Under `cargo xtask torture` (`ONWARD_TORTURE_MINUTES`) it runs more cases from a new seed;
//! `ONWARD_TORTURE_SEED` repeats one. The seed is printed.

/// Maximum growth of the address space during the test of a decoder: other tests of the process map memory at the same time.
const GROWTH_BYTES_MAX: u64 = 2 << 30;

/// Maximum length of an input, unless a sample is longer.
const BYTES_MAX: usize = 64 * 1024;

/// Numbers of mutated inputs that a decoder accepted and refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MutationCounts {
    pub accepted: u64,
    pub refused: u64,
}

impl MutationCounts {
    /// Panics if almost nothing was refused: such a decoder does not check its input.
    #[track_caller]
    pub fn assert_refuses(self) {
        let cases = self.accepted + self.refused;
        assert!(self.refused > cases / 20, "of {cases} damaged inputs {} were accepted", self.accepted);
    }
}

/// Reads every sample, then mutated ones. `read` returns whether it accepted the bytes, and panics on wrong results.
///
/// # Panics
/// Panics if a sample is not accepted, or if the memory of the process grows by gigabytes.
#[track_caller]
pub fn mutate(what: &str, samples: &[Vec<u8>], read: impl FnMut(&[u8]) -> bool) -> MutationCounts {
    mutate_times(what, 3_000, samples, read)
}

/// Runs [`mutate`] with `times` cases, for slow decoders.
#[track_caller]
pub fn mutate_times(what: &str, times: u64, samples: &[Vec<u8>], mut read: impl FnMut(&[u8]) -> bool) -> MutationCounts {
    assert!(!samples.is_empty(), "{what}: there is no sample");
    for sample in samples {
        assert!(read(sample), "{what}: this sample is refused: {}", sample.escape_ascii());
    }
    let from_env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let minutes = from_env("ONWARD_TORTURE_MINUTES");
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let seed = from_env("ONWARD_TORTURE_SEED").or_else(|| minutes.map(|_| now())).unwrap_or(35);
    let cases = minutes.map_or(times, |minutes| minutes.max(1) * 30 * times);
    println!("{what}: reproduce with ONWARD_TORTURE_SEED={seed}");
    let before = address_space_peak();
    let (mut random, mut counts) = (Random::new(seed), MutationCounts { accepted: 0, refused: 0 });
    for case in 0..cases {
        let mut bytes = samples[case as usize % samples.len()].clone();
        let other = &samples[random.below(samples.len())];
        for _ in 0..=random.below(4) {
            change(&mut random, &mut bytes, other);
        }
        match read(&bytes) {
            true => counts.accepted += 1,
            false => counts.refused += 1,
        }
    }
    if let (Some(before), Some(after)) = (before, address_space_peak()) {
        let growth = after - before;
        assert!(growth < GROWTH_BYTES_MAX, "{what}: memory was allocated for lengths that are only promised: {growth} bytes");
    }
    counts
}

/// A random number generator with the same sequence everywhere (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or zero.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % (end as u64).max(1)) as usize
    }
}

/// Makes one change that a network, a disk or an attacker could make.
fn change(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let position = random.below(bytes.len());
    let length_max = bytes.len().max(BYTES_MAX);
    match random.below(9) {
        0 if !bytes.is_empty() => bytes[position] ^= 1 << random.below(8),
        1 if !bytes.is_empty() => bytes[position] = random.next_u64() as u8,
        2 => bytes.truncate(position),
        3 => bytes.insert(position, random.next_u64() as u8),
        4 if !bytes.is_empty() => {
            bytes.remove(position);
        }
        5 => bytes.extend_from_slice(&other[..random.below(other.len())]),
        // A length or a number that promises more than there is.
        6 => {
            let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
            let keep = 1 + random.below(huge.len());
            bytes.splice(position..position, huge[huge.len() - keep..].iter().copied());
        }
        // Characters with a meaning in text formats.
        7 => {
            let words = ["\0", "\n", "\r", "\"", "\\u0000", "{", "[", "~", ":", "-1", "99999999999999999999", "\u{20ac}"];
            let word = words[random.below(words.len())];
            bytes.splice(position..position, word.bytes());
        }
        _ => {
            let whole = bytes.clone();
            bytes.splice(position..position, whole);
        }
    }
    bytes.truncate(length_max);
}

/// Returns the peak size of the address space of this process, if the system reports it.
fn address_space_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests;
