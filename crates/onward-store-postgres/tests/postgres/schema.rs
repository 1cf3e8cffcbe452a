//! Creation and migration of tables, and databases that are refused.

use onward_store::conformance::block_on;
use onward_store::{Store, StoreError};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::Cluster;

use crate::kit::{claim, commit, connect, database, log, new_run, start_held, step};

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
    assert_eq!(database.psql("SELECT count(*), max(version) FROM onward.schema_version").unwrap(), "5|5");
    assert_eq!(database.psql("SELECT count(*) FROM onward.runs").unwrap(), "6");
}

#[test]
fn a_database_of_a_newer_program_is_refused_and_left_untouched() {
    let database = database();
    database.psql("INSERT INTO onward.schema_version(version) VALUES (99)").unwrap();
    let contents = || database.psql("SELECT version, applied_at FROM onward.schema_version ORDER BY 1").unwrap();
    let before = contents();
    match block_on(PostgresStore::connect(&database.socket_url(), Options::default())).map(drop) {
        Err(StoreError::DatabaseNewer { found: 99, supported: 5 }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(contents(), before);
}

/// Reverts the schema to earlier versions.
const WITHOUT_FUNCTIONS: &str = "DO $$ DECLARE f regprocedure; BEGIN
    FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'onward'::regnamespace LOOP EXECUTE 'DROP FUNCTION ' || f; END LOOP; END $$;
  DROP TABLE onward.ledger;
  DELETE FROM onward.schema_version WHERE version >= 4;";
const WITHOUT_LINEAGE: &str = "DROP TABLE onward.lineage; DELETE FROM onward.schema_version WHERE version = 3;";

#[test]
fn a_database_of_an_older_program_is_brought_up_with_its_runs() {
    let database = database();
    let store = connect(&database, Options::default());
    let mut held = start_held(&*store, "r", "w");
    commit(&*store, &mut held, vec![step(0)]);
    drop(store);
    database.psql(WITHOUT_FUNCTIONS).unwrap();
    let store = connect(&database, Options::default());
    commit(&*store, &mut held, vec![step(1)]);
    assert_eq!(log(&*store, "r"), ["run_started", "step_completed", "step_completed"]);
}

/// The earlier program had no restore guard, and its workers may still run (F28).
#[test]
fn a_database_that_does_not_know_where_it_was_fences_whoever_works_on_it() {
    let database = database();
    let store = connect(&database, Options::default());
    let mut held = start_held(&*store, "r", "w");
    commit(&*store, &mut held, vec![step(0)]);
    drop(store);
    database.psql(&format!("{WITHOUT_FUNCTIONS} {WITHOUT_LINEAGE}")).unwrap();
    let store = connect(&database, Options::default());
    assert_eq!(log(&*store, "r"), ["run_started", "step_completed"]);
    let late = block_on(store.commit(held.commit(vec![step(1)]))).unwrap_err();
    assert_eq!(late.code(), "lease_lost");
    let mut again = claim(&*store, "v", 1).pop().expect("the run is free");
    commit(&*store, &mut again, vec![step(1)]);
}

#[test]
fn an_address_that_leads_nowhere_says_why() {
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
