//! TLS to the database: accepted and rejected certificates, and their errors.

use std::sync::atomic::{AtomicU32, Ordering};

use onward_store::conformance::block_on;
use onward_store::{Store, StoreError};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::{Cluster, Settings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::kit::new_run;

/// A certificate authority.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca of ours.pem"), issuer.pem()).unwrap();
        Authority { issuer, folder }
    }

    /// Starts a cluster with a certificate for these names.
    fn cluster(&self, names: &[&str]) -> Cluster {
        let params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        secured(cert.pem(), key.serialize_pem())
    }

    /// Returns the path of its certificate as it is written in an address.
    fn file(&self) -> String {
        self.folder.path().join("ca of ours.pem").display().to_string().replace(' ', "%20")
    }
}

fn secured(cert: String, key: String) -> Cluster {
    let files = vec![("server.crt".to_owned(), cert), ("server.key".to_owned(), key)];
    Cluster::start(Settings { is_forgetful: true, more: vec!["ssl = on".to_owned()], files }).unwrap()
}

fn connect(cluster: &Cluster, settings: &str) -> Result<PostgresStore, StoreError> {
    let url = cluster.url("postgres").replace("onward@", "onward:hidden-word@");
    block_on(PostgresStore::connect(&format!("{url}{settings}"), Options::default()))
}

/// Connects, starts a run, and returns whether all connections are encrypted.
#[track_caller]
fn is_encrypted(cluster: &Cluster, settings: &str) -> bool {
    let store = connect(cluster, settings).unwrap_or_else(|error| panic!("{settings}: {error}"));
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let id = format!("run-{}", RUNS.fetch_add(1, Ordering::Relaxed));
    block_on(store.start_run(new_run(&id), None)).unwrap();
    block_on(store.check()).unwrap();
    let query = "SELECT bool_or(ssl), bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                 WHERE datname = 'postgres' AND client_addr IS NOT NULL";
    match cluster.psql("postgres", query).unwrap().as_str() {
        "t|t" => true,
        "f|f" => false,
        mixed => panic!("{settings}: {mixed}"),
    }
}

#[track_caller]
fn refused(cluster: &Cluster, settings: &str, why: &str) {
    let error = connect(cluster, settings).map(drop).expect_err(settings);
    assert_eq!(error.code(), "database_untrusted", "{settings}: {error}");
    let text = format!("{error} {}", error.hint().unwrap_or_default());
    assert!(text.contains(why) && text.contains("sslrootcert") && !text.contains("hidden-word"), "{settings}: {text}");
}

#[test]
fn a_database_is_trusted_as_far_as_the_address_requires() {
    let (ours, others) = (Authority::new(), Authority::new());
    let cluster = ours.cluster(&["127.0.0.1"]);
    let (ca, wrong) = (ours.file(), others.file());
    assert!(is_encrypted(&cluster, ""), "TLS is preferred where nothing is said");
    assert!(!is_encrypted(&cluster, "?sslmode=disable"));
    for settings in [
        "?sslmode=prefer".to_owned(),
        "?sslmode=require".to_owned(),
        format!("?sslmode=require&sslrootcert={ca}"),
        format!("?sslmode=verify-ca&sslrootcert={ca}"),
        format!("?sslrootcert={ca}&connect_timeout=5&sslmode=verify-full"),
    ] {
        assert!(is_encrypted(&cluster, &settings), "{settings}");
    }
    let no_ca = "is not signed by a CA of";
    for mode in ["require", "verify-ca", "verify-full"] {
        refused(&cluster, &format!("?sslmode={mode}&sslrootcert={wrong}"), no_ca);
    }
    // No CA of this machine has signed it.
    let system = connect(&cluster, "?sslmode=verify-full").map(drop).unwrap_err();
    assert_eq!(system.code(), "database_untrusted", "{system}");
    refused(&cluster, "?sslmode=verify-ca&sslrootcert=/nowhere.pem", "/nowhere.pem cannot be read");
    let odd = connect(&cluster, "?sslmode=sometimes").map(drop).unwrap_err();
    assert!(odd.code() == "database_unusable" && odd.to_string().contains("sslmode"), "{odd}");
}

#[test]
fn a_certificate_for_another_name_is_refused_where_the_name_counts() {
    let ours = Authority::new();
    let (cluster, ca) = (ours.cluster(&["db.example"]), ours.file());
    assert!(is_encrypted(&cluster, &format!("?sslmode=verify-ca&sslrootcert={ca}")));
    refused(&cluster, &format!("?sslmode=verify-full&sslrootcert={ca}"), "127.0.0.1 is for another name");
}

/// As in the manual of PostgreSQL: the certificate is its own CA.
#[test]
fn a_certificate_that_is_named_itself_is_trusted() {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap().pem();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.crt");
    std::fs::write(&file, &cert).unwrap();
    let cluster = secured(cert, key.serialize_pem());
    assert!(is_encrypted(&cluster, &format!("?sslmode=verify-full&sslrootcert={}", file.display())));
}

#[test]
fn a_database_without_tls_is_used_only_where_that_is_allowed() {
    let cluster = Cluster::shared();
    let database = cluster.database(None).unwrap();
    let connect = |settings: &str| {
        let url = format!("{}{settings}", database.url());
        block_on(PostgresStore::connect(&url, Options::default())).map(drop)
    };
    connect("").unwrap();
    connect("?sslmode=prefer").unwrap();
    let plain = connect("?sslmode=require").unwrap_err();
    assert_eq!(plain.code(), "database_untrusted", "{plain}");
    // Unix sockets are not encrypted, whatever the mode, as with libpq.
    let through = format!("{} sslmode=require", database.socket_url());
    block_on(PostgresStore::connect(&through, Options::default())).map(drop).unwrap();
}
