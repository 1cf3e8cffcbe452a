//! Tests of the parent module.

use super::*;

#[test]
fn an_invalid_setting_is_reported_without_its_value() {
    let error_of = |text: &str| read(text).unwrap_err();
    let text = "\n[providers.p]\napi_format = \"openai\"\nbase_url = \"http://x\"\nkey = \"sk-1\"\n";
    let (at, why, hint) = error_of(text);
    assert!(why.starts_with("unknown field `key`") && hint.unwrap().contains("`key_env`"), "{why}");
    assert!(text[at..].starts_with("key"));
    let (_, why, _) = error_of("[providers.p]\napi_format = \"openai\"\nbase_url = \"http://x\"\nheaders = \"sk-1\"\n");
    assert_eq!(why, "invalid type: a string, expected a map");
    assert!(error_of("[agents.a]\nmodel = \"m\"\nmodell = 1\n").1.starts_with("unknown field `modell`"));
    assert_eq!(error_of("[agents.a]\nsystem = \"s\"\n").1, "missing field `model`");
    assert_eq!(error_of("[mcp.x]\nneeds_approval = 7\n").1, "`needs_approval` must be true, false or a list of tools");
    let classes = "expected one of `at_least_once`, `pure`, `keyed`, `at_most_once`";
    assert_eq!(error_of("[mcp.x]\nclass = \"once\"\n").1, format!("unknown variant `once`, {classes}"));
    assert_eq!(error_of("[mcp.x]\nclasses = { f = \"pur\" }\n").1, format!("unknown variant `pur`, {classes}"));
}

#[test]
fn ceilings_are_for_one_namespace_or_for_all() {
    let text =
        "[namespaces.\"*\"]\nbudget_max = { tokens = 9 }\n[namespaces.trial]\nbudget_max = { cost = \"0.5\", turns = 3 }\n";
    let Ceilings { all, namespaces } = read(text).unwrap().ceilings().unwrap();
    assert_eq!(all, Budget::default().tokens(9));
    let trial = namespaces.into_iter().map(|(name, budget)| format!("{name}: {budget}")).collect::<Vec<_>>();
    assert_eq!(trial, ["trial: cost=0.5 turns=3"]);
    // A misspelled limit must not be ignored.
    assert!(read("[namespaces.trial]\nbudget_max = { token = 3 }\n").unwrap_err().1.starts_with("unknown field `token`"));
    assert!(read("[namespaces.trial]\nbudget = { tokens = 3 }\n").unwrap_err().1.starts_with("unknown field `budget`"));
}

#[test]
fn a_person_agrees_to_all_tools_or_to_some() {
    let of = |text: &str| read(&format!("[mcp.x]\nneeds_approval = {text}\n")).unwrap().mcp["x"].needs_approval.of("pay");
    assert_eq!(["true", "false", "[\"pay\"]", "[\"look\"]"].map(of), [true, false, true, false]);
}
