//! Tests of the parent module.

use onward_core::AttributeValue;

use super::*;

#[test]
fn an_attribute_is_printed_with_its_value() {
    let format = |value: Option<AttributeValue>| {
        let event = AttributeSet { call_id: CallId::root(0), name: Name::new("stage").unwrap(), value };
        EventFormatter::default().format(Timestamp(0), &event.into())
    };
    assert_eq!(format(Some("paid\n".into())), "stage = paid\\n");
    assert_eq!(format(Some(AttributeValue::Int(42))), "stage = 42");
    assert_eq!(format(None), "stage removed");
}
