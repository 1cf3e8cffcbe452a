//! Tests of the parent module.

use super::*;

#[test]
fn a_failure_survives_the_way_through_a_box() {
    let failure = Failure::fatal("card refused").with_code("card_refused");
    assert_eq!(Failure::from_box(BoxError::from(failure.clone())), failure);
    assert_eq!(Failure::from(FailureError(failure.clone())), failure);
}

#[test]
fn any_error_converts_and_is_retryable() {
    fn parse() -> Result<u64, Failure> {
        Ok("x".parse::<u64>()?)
    }
    let failure = parse().unwrap_err();
    assert!(failure.retryable);
    assert_eq!(failure.message, "invalid digit found in string");
}

#[test]
fn what_is_too_long_is_cut_with_a_mark_and_once_only() {
    let long = "ä".repeat(FAILURE_BYTES_MAX);
    let causes = vec!["short".to_owned(), long.clone(), long.clone()];
    let details = Payload::json(&long).unwrap();
    let failure = Failure { causes, ..Failure::fatal(long).with_details(details) }.bounded();
    assert!(failure.message.len() <= FAILURE_BYTES_MAX && failure.message.ends_with("ä… (cut)"));
    assert_eq!((failure.causes.len(), failure.causes[0].as_str()), (2, "short"));
    assert!(failure.causes.concat().len() <= FAILURE_BYTES_MAX && failure.causes[1].ends_with(CUT));
    let details: String = failure.details.as_ref().unwrap().read().unwrap();
    assert!(details.ends_with("… (cut): 131074 bytes of application/json"), "{details}");
    assert_eq!(failure.clone().bounded(), failure);
}

#[test]
fn what_is_short_enough_stays_as_it_is() {
    let details = Payload::json(&"x".repeat(FAILURE_BYTES_MAX - 2)).unwrap();
    let failure = Failure::fatal("x".repeat(FAILURE_BYTES_MAX)).with_details(details);
    assert_eq!(failure.clone().bounded(), failure);
}
