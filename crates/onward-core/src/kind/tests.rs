//! Tests of the parent module.

use super::*;

#[test]
fn tools_and_model_calls_are_internal_whatever_they_are_called() {
    let is_internal = |kind: &str| is_internal_task(&Name::new(kind).unwrap());
    for kind in ["llm.gpt-4o", "tool.pay", "tool.support.pay", "tool.", "llm."] {
        assert!(is_internal(kind), "{kind}");
    }
    for kind in ["pay", "llm", "tool", "tools.pay", "my.tool.pay", "task:tool.pay"] {
        assert!(!is_internal(kind), "{kind}");
    }
}
