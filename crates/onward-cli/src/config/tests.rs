//! Tests of the parent module.

use super::*;

#[test]
fn a_flag_beats_the_environment_and_so_on_down() {
    let file = SettingOrigin::File { path: "a".into(), line: 1 };
    let environment = SettingOrigin::Environment("A".to_owned());
    assert!(SettingOrigin::Flag("--a").beats(&environment) && environment.beats(&file) && file.beats(&SettingOrigin::Default));
    assert!(!file.beats(&SettingOrigin::File { path: "b".into(), line: 9 }));
}

#[test]
fn the_defaults_are_those_of_the_server() {
    assert_eq!(Config::default().limits().unwrap(), Limits::default());
}

#[test]
fn an_invalid_value_is_reported_with_its_source() {
    let mut config = Config::default();
    config.flag("limits.streams_max", "--x", Some("0".to_owned()));
    let mistake = config.limits().unwrap_err();
    assert_eq!(mistake.message, "invalid setting `limits.streams_max` = `0` from --x: must be an integer greater than 0");
}
