//! Time zones: the stated rules, and ten years in ten zones against another implementation.

use super::*;

const TABLE: &str = include_str!("../../../tests/fixtures/slots.txt");

fn fnv(slots: &[Timestamp]) -> u64 {
    let bytes = slots.iter().flat_map(|slot| (slot.0 / 1_000).to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// SL1, SL3: the table is made by tests/fixtures/slots.py.
#[test]
fn slots_of_ten_years_agree_with_croniter_and_zoneinfo() {
    let mut compared = 0;
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let mut cells = line.split('\t');
        let (zone, expression) = (cells.next().unwrap(), cells.next().unwrap());
        let slots = Slots::new(&cron(expression, zone)).unwrap();
        for cell in cells {
            let [year, count, hash] = *cell.split(':').collect::<Vec<_>>() else { panic!("{cell}") };
            let (from, until) =
                (at(&format!("{year}-01-01T00:00:00Z")), at(&format!("{}-01-01T00:00:00Z", year.parse::<u32>().unwrap() + 1)));
            let page = slots.slots(from, until, 10_000);
            assert_eq!(page.rest_after, None);
            let found = (page.slots.len().to_string(), format!("{:016x}", fnv(&page.slots)));
            assert_eq!(found, (count.to_owned(), hash.to_owned()), "{zone} {expression} {year}");
            compared += 1;
        }
    }
    assert!(compared > 1_400, "{compared} years");
}

/// SL3
#[test]
fn a_time_that_does_not_exist_is_due_at_the_end_of_the_gap() {
    // The clock goes from 2:00 to 3:00.
    let before = "2026-03-28T12:00:00Z";
    assert_eq!(first(&cron("30 2 * * *", "Europe/Berlin"), before, 2), ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    assert_eq!(
        first(&cron("0,20,40 2-3 * * *", "Europe/Berlin"), before, 3),
        ["2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z", "2026-03-29T01:40:00Z"]
    );
    // Half an hour, from 2:00 to 2:30.
    assert_eq!(first(&cron("15 2 * * *", "Australia/Lord_Howe"), "2026-10-03T00:00:00Z", 1), ["2026-10-03T15:30:00Z"]);
    // A whole day: Samoa had no 30 December 2011.
    assert_eq!(first(&cron("0 9 30 12 *", "Pacific/Apia"), "2011-12-01T00:00:00Z", 1), ["2011-12-30T10:00:00Z"]);
}

/// SL3
#[test]
fn a_time_that_comes_twice_is_due_the_first_time() {
    let before = "2026-10-24T12:00:00Z";
    assert_eq!(first(&cron("30 2 * * *", "Europe/Berlin"), before, 2), ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    let after_the_first = "2026-10-25T00:30:00Z";
    assert_eq!(first(&cron("30 2 * * *", "Europe/Berlin"), after_the_first, 1), ["2026-10-26T01:30:00Z"]);
}

/// SL3
#[test]
fn a_pattern_of_every_hour_follows_elapsed_time() {
    for (before, hours) in [("2026-03-28T22:59:00Z", 6), ("2026-10-24T22:59:00Z", 6)] {
        let slots = first(&cron("30 * * * *", "Europe/Berlin"), before, hours);
        let times: Vec<u64> = slots.iter().map(|slot| at(slot).0).collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 3_600_000), "{slots:?}");
    }
}

/// An exception matches local time, in both passes.
#[test]
fn exceptions_are_local() {
    let quiet = Calendar { hour: Some("2".to_owned()), ..Calendar::default() };
    let spec = ScheduleSpec { except: vec![quiet], ..cron("0 * * * *", "Europe/Berlin") };
    assert_eq!(first(&spec, "2026-10-24T22:30:00Z", 2), ["2026-10-24T23:00:00Z", "2026-10-25T02:00:00Z"]);
}
