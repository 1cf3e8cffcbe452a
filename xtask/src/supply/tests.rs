//! Tests of the parent module.

use super::*;

fn rules() -> Rules {
    let text = "[licenses]\nallow = [\"MIT\", \"ISC\", \"A WITH y\"]\n[bans]\nskip = [{ crate = \"a@1\", reason = \"b\" }]\n\
                [sources]\nallow-registry = [\"https://example.org/index\"]\n";
    Rules::read(text).unwrap()
}

fn package(name: &str, version: &str, license: Option<&str>, source: Option<&str>) -> Package {
    let text = |text: &str| text.to_owned();
    Package { name: text(name), version: text(version), license: license.map(text), source: source.map(text) }
}

const REGISTRY: Option<&str> = Some("registry+https://example.org/index");

fn second_version() -> [Package; 2] {
    [package("a", "1.2.3", Some("MIT"), REGISTRY), package("a", "2.0.0", Some("MIT"), REGISTRY)]
}

#[test]
fn an_expression_is_allowed_if_it_can_be_fulfilled() {
    for allowed in
        ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "MIT AND ISC", "(GPL-3.0 OR MIT) AND ISC", "A WITH x OR MIT", "A WITH y"]
    {
        assert!(rules().allows(allowed), "{allowed}");
    }
    for refused in
        ["GPL-3.0", "MIT AND GPL-3.0", "MIT WITH x", "A", "A WITH x", "(MIT", "MIT ISC", "", "(MIT OR ISC) AND GPL-3.0", "OR"]
    {
        assert!(!rules().allows(refused), "{refused}");
    }
}

#[test]
fn what_is_on_the_lists_is_no_problem() {
    let [old, new] = second_version();
    let ours = package("ours", "0.1.0", None, None);
    assert_eq!(rules().problems(&[old, new, ours]), [""; 0]);
}

#[test]
fn other_licenses_sources_and_versions_are_problems() {
    for (package, problem) in [
        (package("b", "1.0.0", Some("GPL-3.0"), REGISTRY), "has the license GPL-3.0"),
        (package("b", "1.0.0", None, REGISTRY), "names no license"),
        (package("b", "1.0.0", Some("MIT"), Some("git+https://example.org/index")), "comes from git+"),
        (package("b", "1.0.0", Some("MIT"), Some("registry+https://example.com")), "comes from registry+"),
        (package("a", "3.0.0", Some("MIT"), REGISTRY), "has the versions"),
    ] {
        let [old, new] = second_version();
        let problems = rules().problems(&[old, new, package]);
        assert!(problems.len() == 1 && problems[0].contains(problem), "{problems:?}");
    }
    let [_, new] = second_version();
    assert!(rules().problems(&[new])[0].contains("no longer a second version"));
}

#[test]
fn a_second_version_needs_a_reason() {
    let without = "[licenses]\nallow = []\n[bans]\nskip = [{ crate = \"a@1\" }]\n[sources]\nallow-registry = []\n";
    assert!(Rules::read(without).unwrap_err().to_string().contains("a `reason`"));
}
