//! Tests of the parent module.

use super::*;

fn worker(id: &str) -> WorkerId {
    WorkerId::new(id).unwrap()
}

fn in_session(of: &str, id: &str, credential: Option<&str>, session: u64) -> WorkerId {
    worker(id).in_session(&Namespace::new(of).unwrap(), credential, session)
}

/// The store identifies workers by id alone: heartbeats of one worker must not renew the leases of another with the same name.
#[test]
fn the_same_id_in_two_namespaces_is_two_workers() {
    let in_session = |of: &str, id: &str| in_session(of, id, None, 1);
    assert_ne!(in_session("ours", "w"), in_session("theirs", "w"));
    assert_ne!(in_session("a:b", "c"), in_session("a", "b:c"), "wherever the border is drawn");
    assert_eq!(in_session("ours", "w"), in_session("ours", "w"));
    let long = "n".repeat(255);
    assert_eq!(in_session(&long, "w"), in_session(&long, "w"), "however long the two are together");
    assert_ne!(in_session(&long, "w"), in_session(&long, "v"));
}

/// Q9: sessions of one worker and one credential have one owner.
#[test]
fn the_same_id_with_two_credentials_is_two_workers() {
    for of in ["ours".to_owned(), "n".repeat(255)] {
        let own = in_session(&of, "w", Some("a"), 1);
        assert!(own.is_same_owner(&in_session(&of, "w", Some("a"), 2)));
        for (id, credential) in [("w", Some("b")), ("w", None), ("v", Some("a"))] {
            let other = in_session(&of, id, credential, 1);
            assert!(!own.is_same_owner(&other), "{own} {other}");
        }
    }
    assert!(!worker("plain").is_same_owner(&worker("plain")), "the id of no session");
}

#[test]
fn the_name_that_a_worker_chose_is_in_its_id() {
    for credential in [None, Some("a")] {
        assert_eq!(in_session("a:b", "c:d", credential, 1).chosen_name(), worker("c:d"));
    }
    assert_eq!(worker("1-plain").chosen_name(), worker("1-plain"));
}
