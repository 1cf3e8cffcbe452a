//! Tests of the parent module.

use super::*;
use crate::config::Tables;

#[test]
fn a_missing_or_ambiguous_name_is_refused() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let checked = |text: &str, before: &[&str]| {
        let tables: Tables = toml::from_str(&format!("[mcp.x]\ncommand = \"c\"\n{text}\n")).unwrap();
        check_names("x", &tables.mcp["x"], &set(before), &set(&["look", "pay"])).map_err(|error| error.to_string())
    };
    assert_eq!(checked("tools = [\"look\"]\nneeds_approval = [\"pay\"]", &["pay"]), Ok(()));
    assert!(
        checked("needs_approval = [\"payy\"]", &[])
            .unwrap_err()
            .contains("names the unknown tool `payy`; its server has look, pay")
    );
    assert!(checked("tools = [\"lok\"]", &[]).unwrap_err().contains("`lok`"));
    assert!(checked("classes = { shout = \"pure\" }", &[]).unwrap_err().contains("names the unknown tool `shout`"));
    assert!(checked("", &["look"]).unwrap_err().contains("offers the tool `look`"));
}
