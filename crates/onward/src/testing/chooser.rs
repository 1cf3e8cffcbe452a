//! Choices of a schedule: when to crash, and what happens next.

/// The result of a choice about a crash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CrashChoice {
    Go,
    Crash,
}

/// A source of choices.
pub(super) trait Chooser {
    fn before_commit(&mut self) -> CrashChoice;
    fn after_commit(&mut self) -> CrashChoice;
    /// Picks one of `count` possible events.
    fn pick(&mut self, count: usize) -> usize;
    /// Returns whether another due event happens before the code sees the last one, or before its commit is admitted.
    fn hurries(&mut self) -> bool {
        false
    }
}

pub(super) struct Always(pub CrashChoice);

impl Chooser for Always {
    fn before_commit(&mut self) -> CrashChoice {
        self.0
    }
    fn after_commit(&mut self) -> CrashChoice {
        self.0
    }
    fn pick(&mut self, _: usize) -> usize {
        0
    }
}

pub(super) struct CrashAt {
    pub commit: usize,
    pub after: bool,
    pub seen: usize,
}

impl Chooser for CrashAt {
    fn before_commit(&mut self) -> CrashChoice {
        let hit = self.seen == self.commit && !self.after;
        self.seen += 1;
        if hit { CrashChoice::Crash } else { CrashChoice::Go }
    }
    fn after_commit(&mut self) -> CrashChoice {
        if self.seen == self.commit + 1 && self.after { CrashChoice::Crash } else { CrashChoice::Go }
    }
    fn pick(&mut self, _: usize) -> usize {
        0
    }
}

/// A small random generator: the same on every machine, so that a seed reproduces a schedule.
pub(super) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
}

impl Chooser for Random {
    fn before_commit(&mut self) -> CrashChoice {
        if self.next().is_multiple_of(10) { CrashChoice::Crash } else { CrashChoice::Go }
    }
    fn after_commit(&mut self) -> CrashChoice {
        self.before_commit()
    }
    fn pick(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
    fn hurries(&mut self) -> bool {
        self.next().is_multiple_of(3)
    }
}
