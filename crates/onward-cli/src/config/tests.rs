//! Tests of the parent module.

use super::*;

#[test]
fn a_flag_beats_the_environment_and_so_on_down() {
    let file = SettingOrigin::File { path: "a".into(), line: 1 };
    let environment = SettingOrigin::Environment("A".to_owned());
    assert!(SettingOrigin::Flag("--a").beats(&environment) && environment.beats(&file) && file.beats(&SettingOrigin::Default));
    assert!(!file.beats(&SettingOrigin::File { path: "b".into(), line: 9 }));
}
