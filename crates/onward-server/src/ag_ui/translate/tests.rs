//! Tests of the parent module.

use super::super::messages::tests::of_user;
use super::*;

#[test]
fn only_the_entry_that_is_a_message_gets_its_id() {
    let message = |id: &str, text: &str| UserMessage {
        id: id.to_owned(),
        text: text.to_owned(),
        content: json!({"id": id, "text": text}),
        unreadable: None,
    };
    let mut translator = Translator::new(&RunId::new("r").unwrap(), vec![message("u1", "hello"), message("u2", "and then?")]);
    let (foreign, theirs) = (of_user(&json!("says another")), of_user(&json!({"id": "x1", "text": "hello"})));
    let (second, first) = (of_user(&json!({"id": "u2", "text": "and then?"})), of_user(&json!("hello")));
    for shown in [&foreign, &theirs, &second, &first] {
        translator.show(shown, &mut Vec::new());
    }
    let names = [(first.entry, "u1".to_owned()), (second.entry, "u2".to_owned())];
    assert_eq!(translator.names, BTreeMap::from(names));
    assert!(translator.pending.is_empty());
}
