//! The target of spans, from code or the environment.

/// The OTLP collector to which spans are exported. Without one, nothing is traced.
#[derive(Debug, Clone)]
pub struct Otlp {
    pub(super) endpoint: String,
    pub(super) service: String,
    pub(super) headers: Vec<(String, String)>,
    /// A protocol in the environment that is not supported.
    pub(super) unsupported: Option<String>,
}

/// The only supported protocol.
const GRPC: &str = "grpc";

impl Otlp {
    /// Exports to the collector at `endpoint` over gRPC, for example `http://127.0.0.1:4317`.
    pub fn to(endpoint: impl Into<String>) -> Otlp {
        Otlp { endpoint: endpoint.into(), service: "onward".to_owned(), headers: Vec::new(), unsupported: None }
    }

    /// Sets the service name in traces; default `onward`.
    pub fn service(mut self, name: impl Into<String>) -> Otlp {
        self.service = name.into();
        self
    }

    /// Adds a header to every export, such as a collector's API key.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Otlp {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Reads the standard environment variables: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`,
    /// `OTEL_SERVICE_NAME`, `OTEL_EXPORTER_OTLP_HEADERS`. The worker does not start if `OTEL_EXPORTER_OTLP_PROTOCOL` is not
    /// `grpc`, because spans sent to the port of another protocol are lost silently. Returns `None` without an endpoint, and with
    /// `OTEL_SDK_DISABLED=true`.
    pub fn from_env() -> Option<Otlp> {
        Otlp::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(read: impl Fn(&str) -> Option<String>) -> Option<Otlp> {
        if read("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let endpoint = read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| read("OTEL_EXPORTER_OTLP_ENDPOINT"))?;
        let mut otlp = Otlp::to(endpoint);
        let protocol = read("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| read("OTEL_EXPORTER_OTLP_PROTOCOL"));
        otlp.unsupported = protocol.filter(|protocol| protocol != GRPC);
        if let Some(name) = read("OTEL_SERVICE_NAME") {
            otlp = otlp.service(name);
        }
        let headers =
            read("OTEL_EXPORTER_OTLP_TRACES_HEADERS").or_else(|| read("OTEL_EXPORTER_OTLP_HEADERS")).unwrap_or_default();
        for (name, value) in headers.split(',').filter_map(|header| header.split_once('=')) {
            otlp = otlp.header(name.trim().to_ascii_lowercase(), unescape(value.trim()));
        }
        Some(otlp)
    }
}

/// Decodes a header value, which is percent-encoded.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|two| std::str::from_utf8(two).ok()).and_then(|two| u8::from_str_radix(two, 16).ok());
        match code.filter(|_| first == b'%') {
            Some(code) => {
                bytes.push(code);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::Otlp;

    #[test]
    fn the_environment_says_where_spans_go() {
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
}
