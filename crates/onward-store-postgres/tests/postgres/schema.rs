//! Creation and migration of tables, and databases that are refused.

use onward_store::conformance::block_on;
use onward_store::{Store, StoreError};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::Cluster;

use crate::kit::{database, new_run};

#[test]
fn servers_that_start_at_once_on_an_empty_database_all_come_up() {
    let database = Cluster::shared().database(None).unwrap();
    let threads: Vec<_> = (0..6)
        .map(|number| {
            let url = database.socket_url();
            std::thread::spawn(move || {
                let store = block_on(PostgresStore::connect(&url, Options::default())).unwrap();
                block_on(store.start_run(new_run(&format!("r{number}")), None)).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(database.psql("SELECT count(*), max(version) FROM onward.schema_version").unwrap(), "3|3");
    assert_eq!(database.psql("SELECT count(*) FROM onward.runs").unwrap(), "6");
}

#[test]
fn a_database_of_a_newer_program_is_refused_and_left_untouched() {
    let database = database();
    database.psql("INSERT INTO onward.schema_version(version) VALUES (99)").unwrap();
    let contents = || database.psql("SELECT version, applied_at FROM onward.schema_version ORDER BY 1").unwrap();
    let before = contents();
    match block_on(PostgresStore::connect(&database.socket_url(), Options::default())).map(drop) {
        Err(StoreError::DatabaseNewer { found: 99, supported: 3 }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(contents(), before);
}

#[test]
fn an_address_that_leads_nowhere_is_an_error_with_the_reason() {
    let open = |url: &str| block_on(PostgresStore::connect(url, Options::default())).map(drop).unwrap_err();
    assert_eq!(open("postgres://").code(), "database_unusable");
    assert_eq!(open("postgres://nobody@127.0.0.1:1/none").code(), "store_unavailable");
    let missing = open(&Cluster::shared().url("no_such_database"));
    assert_eq!(missing.code(), "database_unusable", "{missing}");
    assert!(missing.to_string().contains("no_such_database"), "{missing}");
}

#[test]
fn a_database_that_cannot_keep_every_name_is_refused() {
    let (cluster, name) = (Cluster::shared(), format!("latin_{}", std::process::id()));
    let make = format!("CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
    cluster.psql("postgres", &make).unwrap();
    let refused = block_on(PostgresStore::connect(&cluster.socket_url(&name), Options::default())).err().unwrap();
    assert!(matches!(&refused, StoreError::DatabaseUnusable { why } if why.contains("LATIN1")), "{refused:?}");
    cluster.psql("postgres", &format!("DROP DATABASE {name}")).unwrap();
}
