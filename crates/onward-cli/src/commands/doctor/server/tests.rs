//! Tests of the parent module.

use super::*;

/// The clock of timers depends on the store, which is unknown over HTTP, so the advice names both.
#[test]
fn a_clock_that_is_off_is_reported_with_both_clocks_that_timers_may_follow() {
    let mut findings = Findings::new(false);
    clock(Some("Mon, 01 Jan 2001 00:00:00 GMT"), &mut findings);
    let found = serde_json::to_value(findings.document()).unwrap();
    let check = &found["checks"][0];
    assert_eq!((&check["check"], &check["state"]), (&"clock".into(), &"warn".into()), "{found}");
    let advice = check["advice"].as_str().unwrap();
    assert!(advice.contains("the server's for a directory") && advice.contains("the database's for PostgreSQL"), "{advice}");
    let mut findings = Findings::new(false);
    clock(Some(&httpdate::fmt_http_date(SystemTime::now())), &mut findings);
    assert_eq!(serde_json::to_value(findings.document()).unwrap()["warned"], 0);
}
