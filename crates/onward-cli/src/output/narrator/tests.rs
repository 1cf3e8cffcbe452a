//! Tests of the parent module.

use onward_core::AttributeValue;

use super::*;

#[test]
fn an_attribute_is_told_with_its_value() {
    let tell = |value: Option<AttributeValue>| {
        let event = AttributeSet { call_id: CallId::root(0), name: Name::new("stage").unwrap(), value };
        Narrator::default().tell(Timestamp(0), &event.into())
    };
    assert_eq!(tell(Some("paid\n".into())), "stage = paid\\n");
    assert_eq!(tell(Some(AttributeValue::Int(42))), "stage = 42");
    assert_eq!(tell(None), "stage removed");
}
