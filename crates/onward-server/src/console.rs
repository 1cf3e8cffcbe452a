//! The console: a web page at `/` and its files under `/console/`, which are part of the program.
//!
//! Contains nothing that needs a key: the page signs in ([`crate::auth::session`]) and then uses the HTTP API like other clients.
//! Its content security policy permits scripts, styles and requests of this server only.

use std::sync::LazyLock;

use axum::http::HeaderValue;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH};
use sha2::{Digest as _, Sha256};

use crate::handlers::prelude::*;
use crate::hex;
use crate::http::response::text;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; \
                      form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

const CROSS_ORIGIN_OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// One file of the console.
struct Asset {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    etag: HeaderValue,
}

macro_rules! assets {
    ($($name:literal $content_type:literal,)*) => {
        static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| vec![$(Asset::new(
            $name,
            $content_type,
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/console/", $name)),
        )),*]);
    };
}

assets! {
    "index.html" "text/html; charset=utf-8",
    "app.js" "text/javascript; charset=utf-8",
    "app.css" "text/css; charset=utf-8",
    "icon.svg" "image/svg+xml",
}

impl Asset {
    fn new(name: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Asset {
        let etag = format!("\"{}\"", hex::encode(&Sha256::digest(bytes)[..12]));
        Asset { name, content_type, bytes, etag: HeaderValue::from_str(&etag).expect("hex digits are a header value") }
    }

    /// Returns the file, or 304 if the client has it. Clients ask each time, so a new version of the server shows at once.
    fn respond(&self, request: &Request) -> Response {
        let known = request.headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        let own = self.etag.to_str().unwrap_or_default();
        // A proxy that compresses a file makes its tag a weak one.
        let is_known = known.flat_map(|list| list.split(',')).any(|tag| tag.trim().trim_start_matches("W/") == own);
        let mut response = match is_known {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => self.bytes.into_response(),
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(ETAG, self.etag.clone());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(CROSS_ORIGIN_OPENER_POLICY, HeaderValue::from_static("same-origin"));
        response
    }
}

fn find(name: &str) -> Result<&'static Asset, Problem> {
    let unknown = || RequestError::RouteNotFound { method: "GET".to_owned(), path: format!("/console/{name}") };
    ASSETS.iter().find(|asset| asset.name == name).ok_or_else(|| unknown().into())
}

/// Handles `GET /`: the console for browsers, a few lines for other clients.
pub(crate) async fn index(request: Request) -> Result<Response, Problem> {
    let accepts = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains("text/html"));
    if request.headers.get(ACCEPT).is_some_and(accepts) {
        return Ok(find("index.html")?.respond(&request));
    }
    let version = env!("CARGO_PKG_VERSION");
    Ok(text(
        StatusCode::OK,
        format!(
            "onward {version}\n\nruns       /v1/runs\napprovals  /v1/approvals\nall routes /openapi.json\nconsole    / in a browser\n"
        ),
    ))
}

/// Handles `GET /console/{id}`.
pub(crate) async fn file(request: Request) -> Result<Response, Problem> {
    Ok(find(request.id.as_deref().unwrap_or_default())?.respond(&request))
}
