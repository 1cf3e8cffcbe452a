//! Tests of the parent module.

use super::*;

#[test]
fn the_defaults_are_those_of_the_server() {
    assert_eq!(limits(&Config::default()).unwrap(), Limits::default());
}

#[test]
fn what_makes_no_sense_is_told_with_its_source() {
    let mut config = Config::default();
    config.flag("limits.streams_max", "--x", Some("0".to_owned()));
    let mistake = limits(&config).unwrap_err();
    assert_eq!(mistake.message, "invalid setting `limits.streams_max` = `0` from --x: must be an integer greater than 0");
}
