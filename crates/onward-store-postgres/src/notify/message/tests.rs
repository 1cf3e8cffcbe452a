//! Tests of the parent module.

use super::*;

fn run(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).expect("a good id"))
}

/// Any session of the database may notify (S35).
#[test]
fn mutated_notifications_never_panic_and_read_back() {
    let sample = "me\nd7\nl3\nl4\no\nwdefault\nedefault\ta b\ngdefault\tc/d";
    onward_testkit::mutate("notifications", &[sample.as_bytes().to_vec()], |bytes| {
        let Some((server, notice)) = std::str::from_utf8(bytes).ok().and_then(parse) else { return false };
        let again = notice.payload(&server);
        assert_eq!(parse(&again), Some((server, notice)), "{}", bytes.escape_ascii());
        true
    });
}

#[test]
fn a_notification_is_parsed_and_nonsense_is_ignored() {
    let notice = Notice {
        due: Some(Timestamp(7)),
        has_deliveries: true,
        work: BTreeSet::from([Namespace::default()]),
        grown: BTreeMap::from([(run("a b"), true), (run("c/d"), false)]),
        broadcasts: BTreeSet::from([3, 4]),
        is_cut: false,
    };
    let parsed = parse(&notice.payload("me")).expect("it has a server");
    assert_eq!(parsed, ("me".to_owned(), notice));
    assert_eq!(parse("me\n?\ng\n\u{e9}\nea\nd-1\nl").map(|parsed| parsed.1), Some(Notice::default()));
}

#[test]
fn what_does_not_fit_is_left_out_and_the_message_is_marked() {
    let notice = Notice { grown: (0..1_000).map(|number| (run(&format!("run-{number}")), false)).collect(), ..Notice::default() };
    let payload = notice.payload("me");
    assert!(payload.len() < 8_000);
    let parsed = parse(&payload).expect("it has a server").1;
    assert!(parsed.grown.len() > 300 && parsed.is_cut);
}
