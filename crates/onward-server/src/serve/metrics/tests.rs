//! Tests of the parent module.

use super::*;
use crate::http::routes::ROUTES;

#[test]
fn a_request_is_counted_by_the_method_of_its_route() {
    let metrics = Metrics::default();
    for route in ROUTES {
        metrics.request(route.method.as_str(), route.path, 200);
    }
    assert!(read(&metrics.requests).keys().all(|(method, ..)| *method != "other"), "a route has a method without a label");
    metrics.request("BREW", "none", 405);
    assert!(read(&metrics.requests).contains_key(&("other", "none", 405)));
}
