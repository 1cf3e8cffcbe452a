//! Random uses of two namespaces against a plain reference, while quotas change and time passes.
//!
//! The reference shares nothing with the code under test: it has every run, lease, start and cost in a list, and looks at whole spans
//! and days.

use super::*;

/// The number of cases in the ordinary run.
const CASES: u64 = 10_000;

const HOUR: u64 = 60 * 60 * 1_000;

/// Random numbers of one case, by SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, size: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % size
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| make(self))
    }

    fn settings(&mut self) -> QuotaSettings {
        QuotaSettings {
            runs_open_max: self.maybe(|dice| dice.below(5)),
            start_rate: self.maybe(|dice| QueueRate { starts_max: 1 + dice.below(4) as u32, period_ms: 1 + dice.below(400) }),
            tasks_running_max: self.maybe(|dice| dice.below(5) as u32),
            payload_bytes_max: None,
            spend_per_day_max: self.maybe(|dice| PicoDollars(dice.below(20))),
            part: None,
        }
    }
}

/// One namespace: what a store keeps, and what really happened.
#[derive(Default)]
struct Tenant {
    quota: QuotaSettings,
    open: u64,
    leases: u32,
    /// Starts of callers since the rate was set.
    started: Vec<u64>,
    /// Costs with the times of their attempts.
    costs: Vec<(u64, u64)>,
    starts: Option<QueueStarts>,
}

impl Tenant {
    /// Counts the starts of the span of one period that ends at `now`.
    fn in_span(&self, period: u64, now: u64) -> u64 {
        self.started.iter().filter(|at| **at >= (now + 1).saturating_sub(period)).count() as u64
    }

    fn spent(&self, now: u64) -> u64 {
        self.costs.iter().filter(|(at, _)| at / (24 * HOUR) == now / (24 * HOUR)).map(|(_, cost)| cost).sum()
    }

    /// Starts a run as a store does; returns what is wrong with the decision, by the reference.
    fn start(&mut self, now: u64) -> Option<&'static str> {
        let at = Timestamp(now);
        let starts = self.quota.start_rate.as_ref().map(|_| QueueStarts::new(Namespace::default(), None, None));
        let starts = self.starts.clone().or(starts);
        let admitted = self.quota.admit_start(self.open, starts.as_ref(), at);
        let may_open = self.quota.runs_open_max.is_none_or(|max| self.open < max);
        let is_in_rate =
            self.quota.start_rate.as_ref().is_none_or(|of| self.in_span(of.period_ms, now) < u64::from(of.starts_max));
        // Starts are counted for up to a 64th of a period longer, and at least a millisecond.
        let longer = |of: &QueueRate| of.period_ms + (of.period_ms / 64).max(1);
        let must_start =
            may_open && self.quota.start_rate.as_ref().is_none_or(|of| self.in_span(longer(of), now) < u64::from(of.starts_max));
        match admitted {
            Ok(()) if !may_open => return Some("NQ1: a run too many"),
            Ok(()) if !is_in_rate => return Some("NQ2: a start too many"),
            Err(_) if must_start => return Some("NQ1, NQ2: refused without reason"),
            Err(refused) if refused.retry_after_ms == 0 => return Some("a refusal without a time"),
            Err(_) => return None,
            Ok(()) => {}
        }
        self.open += 1;
        self.started.push(now);
        if let (Some(rate), Some(mut starts)) = (self.quota.start_rate.clone(), starts) {
            starts.add(&rate, 1, at);
            self.starts = Some(starts);
        }
        None
    }

    /// Claims tasks, one of which costs; returns what is wrong.
    fn claim(&mut self, wanted: usize, now: u64) -> Option<&'static str> {
        let room = self.quota.task_room(self.leases, wanted);
        let free = self.quota.tasks_running_max.map_or(u32::MAX, |max| max.saturating_sub(self.leases));
        if room as u64 != (wanted as u64).min(u64::from(free)) {
            return Some("NQ3");
        }
        self.leases += room as u32;
        let spent = self.spent(now);
        let may_spend = self.quota.may_spend(PicoDollars(spent));
        if may_spend != self.quota.spend_per_day_max.is_none_or(|max| spent < max.0) {
            return Some("NQ4");
        }
        if may_spend {
            self.costs.push((now, 3));
        }
        None
    }
}

fn play(seed: u64) -> Result<(), String> {
    let mut dice = Dice(seed);
    let mut tenants = [Tenant { quota: dice.settings(), ..Tenant::default() }, Tenant::default()];
    let mut now = dice.below(48) * HOUR;
    for step in 0..40 {
        let of = dice.below(2) as usize;
        let tenant = &mut tenants[of];
        let wrong = match dice.below(10) {
            0 => {
                now += dice.below(500);
                None
            }
            1 => {
                now += dice.below(20) * HOUR;
                None
            }
            2 => {
                tenant.open = tenant.open.saturating_sub(1);
                None
            }
            // A child, which is never refused.
            3 => {
                tenant.open += 1;
                None
            }
            4 => {
                tenant.leases = tenant.leases.saturating_sub(1);
                None
            }
            5 if of == 0 => {
                // What began before a rate was set is not its concern.
                (tenant.quota, tenant.starts, tenant.started) = (dice.settings(), None, Vec::new());
                None
            }
            6..=7 => tenant.start(now),
            _ => tenant.claim(dice.below(6) as usize, now),
        };
        if let Some(wrong) = wrong {
            return Err(format!("step {step}: {wrong}: tenant {of} with {:?} at {now}", tenants[of].quota));
        }
    }
    Ok(())
}

#[test]
fn decisions_agree_with_a_plain_reference() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = number("ONWARD_SEED").map_or(0..number("ONWARD_CASES").unwrap_or(CASES), |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(why) = play(seed) {
            panic!("ONWARD_SEED={seed}: {why}");
        }
    }
}

/// The negative tests: the reference notices a store that counts too little.
#[test]
fn the_reference_notices_what_was_not_counted() {
    let rate = Some(QueueRate { starts_max: 1, period_ms: 100 });
    let mut forgetful =
        Tenant { quota: QuotaSettings { start_rate: rate, ..QuotaSettings::default() }, started: vec![5], ..Tenant::default() };
    assert_eq!(forgetful.start(10), Some("NQ2: a start too many"));
    assert_eq!(forgetful.start(200), None);
}
