//! Tests of the parent module.

use super::*;

#[test]
fn a_protocol_that_is_not_spoken_is_refused_by_its_name() {
    let otlp = Otlp { unsupported: Some("http/protobuf".to_owned()), ..Otlp::to("http://127.0.0.1:4318") };
    let Err(refused) = Sender::new(otlp) else { panic!("spans would be lost") };
    assert_eq!(refused.code(), "server_url_invalid");
    assert!(refused.to_string().contains("http/protobuf") && refused.to_string().contains("4317"), "{refused}");
}
