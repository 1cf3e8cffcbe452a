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
mod tests;
