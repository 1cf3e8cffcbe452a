//! Tests of the parent module.

use super::*;

#[test]
fn only_exact_origins_and_the_star_are_accepted() {
    let cors = Cors::parse("https://a.example, http://localhost:5173").unwrap();
    assert_eq!((cors.origins.len(), cors.allows_all()), (2, false));
    assert!(Cors::parse("*").unwrap().allows_all());
    assert_eq!(Cors::parse(" ").unwrap(), Cors::default());
    for wrong in ["https://a.example/", "a.example", "https://*.example", "ftp://a", "https://A.example", "null", "https://a/b"] {
        assert!(Cors::parse(wrong).is_err(), "{wrong}");
    }
}
