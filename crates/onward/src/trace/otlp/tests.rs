//! Tests of the parent module.

use super::Otlp;

#[test]
fn the_environment_sets_where_spans_go() {
    let read = |variables: &'static [(&str, &str)]| {
        Otlp::from_variables(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()))
    };
    assert!(read(&[("OTEL_SERVICE_NAME", "shop")]).is_none());
    assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317"), ("OTEL_SDK_DISABLED", "true")]).is_none());
    let otlp = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317"),
        ("OTEL_SERVICE_NAME", "shop"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=a%20b, other=c"),
    ]);
    let otlp = otlp.unwrap();
    assert_eq!((otlp.endpoint.as_str(), otlp.service.as_str()), ("http://a:4317", "shop"));
    assert_eq!(otlp.headers, [("x-key".to_owned(), "a b".to_owned()), ("other".to_owned(), "c".to_owned())]);
    assert_eq!(otlp.unsupported, None);
    let http = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]);
    assert_eq!(http.unwrap().unsupported.as_deref(), Some("http/protobuf"));
    let grpc = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
    ]);
    assert_eq!(grpc.unwrap().unsupported, None);
    let own = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b:1")]);
    assert_eq!(own.unwrap().endpoint, "http://b:1");
}
