//! Tests of the parent module.

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::auth::secret_file::format;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

fn wanted(name: &str) -> NewKey {
    NewKey {
        name: Name::new(name).unwrap(),
        namespace: Reach::All,
        scopes: [Scope::Read].into(),
        lifetime: None,
        budget_max: None,
        bounds: Bounds::default(),
    }
}

/// G4, G5: no secret in the file, private permissions, no temporary file left.
#[test]
fn the_file_is_whole_private_and_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let file = KeyFile::at(directory.path().join("new/keys.json"));
    let made = file.create(wanted("ada"), NOW).unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(text.contains(&made.entry.id) && !text.contains(made.key.secret()), "{text}");
    assert_eq!(std::fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(file.path().parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    assert!(!file.beside(".new").exists());
    assert_eq!(file.read().unwrap(), [made.entry]);
}

#[test]
fn a_rotated_key_goes_on_for_its_overlap_and_has_a_successor_of_its_kind() {
    let directory = tempfile::tempdir().unwrap();
    let file = KeyFile::at(directory.path().join(KEYS_FILE));
    let budget_max = Some(Budget::default().tokens(1_000));
    let bounds = Bounds { queues: Some([String::new()].into()), ..Bounds::default() };
    let new = NewKey { lifetime: Some(90 * DAY), budget_max, bounds: bounds.clone(), ..wanted("ada") };
    let first = file.create(new, NOW).unwrap().entry;
    let later = NOW.after(DAY);
    let (made, old) = file.rotate(&first.id, DAY, later).unwrap();
    assert_eq!((old.expires_at, made.entry.expires_at), (Some(later.after(DAY)), Some(later.after(90 * DAY))));
    assert_eq!((&made.entry.name, &made.entry.scopes), (&first.name, &first.scopes));
    assert_eq!((made.entry.budget_max, &made.entry.bounds), (budget_max, &bounds));
    assert_eq!((&first.origin, &made.entry.origin), (&None, &Some(first.id.clone())), "both are one identity (S5)");
    assert_ne!((&made.entry.id, made.entry.sha256), (&first.id, first.sha256));
    let refused = |error: SecretFileError| error.code();
    assert_eq!(file.rotate(&first.id, DAY, later.after(DAY)).map_err(refused).unwrap_err(), "key_ended");
    assert_eq!(file.rotate("nobody", DAY, later).map_err(refused).unwrap_err(), "key_not_found");
    let revoked = file.revoke(&made.entry.id, later).unwrap();
    assert_eq!(file.revoke(&made.entry.id, later.after(DAY)).unwrap(), revoked, "the first time counts");
    assert_eq!(file.read().unwrap().len(), 2);
}

/// G5: concurrent changes are all kept.
#[test]
fn no_change_is_lost_to_another() {
    let directory = tempfile::tempdir().unwrap();
    let file = KeyFile::at(directory.path().join(KEYS_FILE));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10).for_each(|_| drop(file.create(wanted("ada"), NOW).unwrap())));
        }
    });
    assert_eq!(file.read().unwrap().len(), 40);
}

/// S35.
#[test]
fn mutated_key_files_are_refused_or_read_back_and_never_panic() {
    let directory = tempfile::tempdir().unwrap();
    let file = KeyFile::at(directory.path().join(KEYS_FILE));
    file.create(wanted("ada"), NOW).unwrap();
    let whole = std::fs::read(file.path()).unwrap();
    let counts = onward_testkit::mutate("key files", &[whole], |bytes| {
        let Ok(keys) = file.parse(bytes) else { return false };
        assert_eq!(file.parse(format(&keys).as_bytes()).unwrap(), keys);
        true
    });
    counts.assert_refuses();
}

/// G2.
#[test]
fn an_invalid_key_file_is_refused_without_revealing_its_content() {
    let directory = tempfile::tempdir().unwrap();
    let file = KeyFile::at(directory.path().join(KEYS_FILE));
    assert!(file.read().unwrap_err().is_missing());
    assert_eq!(file.revoke("x", NOW).unwrap_err().code(), "key_file_unusable");
    let entry = file.create(wanted("ada"), NOW).unwrap().entry;
    let whole = std::fs::read_to_string(file.path()).unwrap();
    let twice = format(&[entry.clone(), entry]);
    let newer = whole.replace("\"version\": 1", "\"version\": 2");
    let unknown = whole.replace("\"version\": 1", "\"version\": 1, \"onw_SECRET\": 1");
    for text in ["", "{}", "[]", "\0", &whole[..whole.len() / 2], &twice, &newer, &unknown, &whole.replace("read", "onw_SECRET")]
    {
        std::fs::write(file.path(), text).unwrap();
        let error = file.read().unwrap_err();
        assert!(error.code() == "key_file_unusable" && !error.to_string().contains("SECRET"), "{error}");
        assert!(file.create(wanted("eve"), NOW).is_err(), "a broken file is not overwritten");
    }
    std::fs::write(file.path(), &whole).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o620);
    std::fs::set_permissions(file.path(), open).unwrap();
    assert!(file.read().unwrap_err().to_string().contains("it is writable by others"));
    assert!(KeyFile::at(directory.path()).read().unwrap_err().to_string().contains("not a regular file"));
}
