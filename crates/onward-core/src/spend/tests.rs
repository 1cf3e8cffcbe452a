//! Tests of the parent module.

use super::*;
use crate::CallId;

#[test]
fn dollars_are_read_and_written_exactly() {
    for (text, pico) in [("2.5", 2_500_000_000_000), ("0.000000000001", 1), ("0", 0), ("18446744.073709551615", u64::MAX)] {
        assert_eq!(PicoDollars::parse(text), Some(PicoDollars(pico)), "{text}");
        assert_eq!(PicoDollars(pico).to_string(), text);
    }
    for text in ["", ".5", "1.", "-1", "1e3", "0.0000000000001", "18446744.073709551616", "$2"] {
        assert_eq!(PicoDollars::parse(text), None, "{text}");
    }
    assert_eq!(serde_json::to_string(&PicoDollars(810_000_000)).unwrap(), r#""0.00081""#);
}

#[test]
fn sums_stop_at_the_largest_number() {
    let most = Tokens { input: u64::MAX, output: 3, ..Tokens::default() };
    assert_eq!(most.total(), u64::MAX);
    let line = SpendTotals::of(&Spend::on("m").tokens(most).cost(PicoDollars(u64::MAX)));
    let twice = line.plus(&line);
    assert_eq!((twice.attempts, twice.tokens.input, twice.tokens.output, twice.cost.0), (2, u64::MAX, 6, u64::MAX));
}

#[test]
fn an_attempt_stands_as_unknown_and_then_with_what_it_cost() {
    let (call_id, began_at) = (CallId::root(0), Timestamp(3 * DAY_MS + 1));
    let begun =
        TaskAttempted { call_id: call_id.clone(), attempt: 1, ledger_name: Some("m".to_owned()), began_at: Some(began_at) };
    let tokens = Tokens { input: 7, ..Tokens::default() };
    let spend = vec![Spend::on("m").tokens(tokens).cost(PicoDollars(5)), Spend::on("other").tokens(tokens)];
    let ended = TaskAttemptEnded {
        call_id,
        generation: 0,
        attempt: 1,
        claim: 1,
        began_at,
        ledger_name: Some("m".to_owned()),
        failure_code: None,
        spend,
    };
    let total = |events: &[Event]| {
        let charges: Vec<Charge> = events.iter().flat_map(charges).collect();
        assert!(charges.iter().all(|charge| charge.day == 3));
        charges.iter().fold(SpendTotals::default(), |totals, charge| totals.charged(charge))
    };
    let unknown = total(&[begun.clone().into()]);
    assert_eq!((unknown.attempts, unknown.unknown), (1, 1));
    let known = total(&[begun.into(), ended.clone().into()]);
    assert_eq!((known.attempts, known.unknown, known.unpriced), (2, 0, 1), "one line per model");
    assert_eq!((known.tokens.input, known.cost), (14, PicoDollars(5)));

    assert_eq!(ended.malformed(), None);
    let nothing = TaskAttemptEnded { spend: Vec::new(), ..ended.clone() };
    assert_eq!(nothing.malformed(), None, "an attempt that was not begun");
    assert!(TaskAttemptEnded { ledger_name: None, ..nothing }.malformed().is_some());
    assert!(TaskAttemptEnded { spend: vec![Spend::on("")], ..ended.clone() }.malformed().is_some());
    assert!(TaskAttemptEnded { spend: vec![Spend::on("m"); LINES_MAX + 1], ..ended }.malformed().is_some());
}
