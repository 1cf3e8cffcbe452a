//! Tests of the parent module.

use super::*;

#[test]
fn a_database_is_shown_without_its_password() {
    let shown = |url: &str| StoreLocation::Databases(url.split(',').map(str::to_owned).collect()).to_string();
    assert_eq!(shown("postgres://me:se@cret@host:5432/runs?password=x"), "postgres://host:5432/runs");
    assert_eq!(shown("postgres://host/runs"), "postgres://host/runs");
    assert_eq!(shown("host=h password=secret"), "a PostgreSQL database");
    assert_eq!(shown("postgres://a:b@one/x,postgres://c:d@two/y"), "postgres://one/x, postgres://two/y");
}
