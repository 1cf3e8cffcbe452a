//! Tests of the parent module.

use super::*;

fn hint(name: &str) -> Option<String> {
    check([name.to_owned()].into_iter()).err().and_then(|mistake| mistake.hint)
}

#[test]
fn a_name_that_looks_like_a_setting_and_is_none_is_reported_with_the_one_that_was_meant() {
    for (name, meant) in [
        ("ONWARD_NAMESPCE", "ONWARD_NAMESPACE"),
        ("ONWARD_URLL", "ONWARD_URL"),
        ("ONWARD_KEYFILE", "ONWARD_KEY_FILE"),
        ("ONWARD_KEEY", "ONWARD_KEY"),
        ("ONWARD_CONFG", "ONWARD_CONFIG"),
        ("ONWARD_LOG_LEVEL", "ONWARD_LOG__LEVEL"),
        ("ONWARD_LISTEN", "ONWARD_SERVER__LISTEN"),
        ("ONWARD_LIMITS__CONNECTION_MAX", "ONWARD_LIMITS__CONNECTIONS_MAX"),
    ] {
        assert_eq!(hint(name), Some(format!("did you mean {meant}?")), "{name}");
    }
    assert_eq!(hint("ONWARD_SOMETHING__ELSE_ALTOGETHER").as_deref(), Some("`onward config show` lists all settings"));
}

#[test]
fn settings_and_the_names_of_others_are_left_alone() {
    let settings = KEYS.iter().map(SettingKey::variable);
    let ours = "BIN BUILT_FROM CASES CHECK CONFIG FAILPOINT FAILPOINT_LOG GEN POISONED RECORD_GOLDEN RETRY_SEED SEED SLOW \
                TEST_ALONE TEST_DIRECTORY TEST_ROLE TORTURE_MINUTES TORTURE_SEED WRITE ZOMBIE";
    let ours = ours.split_whitespace().map(|name| format!("{PREFIX}{name}"));
    let theirs = ["ONWARD_MY_QUEUE", "ONWARD_HOST", "ONWARD_", "PATH"].map(str::to_owned);
    for name in settings.chain(ours).chain(theirs) {
        assert_eq!(hint(&name), None, "{name}");
    }
}
