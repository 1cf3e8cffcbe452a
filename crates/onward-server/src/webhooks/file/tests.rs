use std::os::unix::fs::PermissionsExt;

use super::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

fn wanted(name: &str, format: Format) -> NewWebhook {
    let target = WebhookTarget::Start { kind: Name::new("order").unwrap(), version: None, run_id: None };
    NewWebhook { name: Name::new(name).unwrap(), namespace: Namespace::default(), format, target, secret: None }
}

#[test]
fn a_hook_is_made_rotated_and_deleted_in_a_file_of_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let file = WebhookFile::at(directory.path().join("new/webhooks.json"));
    let name = Name::new("pay").unwrap();
    let made = file.create(wanted("pay", Format::Standard), NOW).unwrap();
    assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(made.secrets[0].secret.reveal().starts_with("whsec_"));
    assert!(!format!("{made:?}").contains(made.secrets[0].secret.reveal()), "HK4");
    assert_eq!(file.create(wanted("pay", Format::github()), NOW).unwrap_err().code(), "webhook_exists");
    let rotated = file.rotate(&name, None, DAY, NOW).unwrap();
    let ends: Vec<Option<Timestamp>> = rotated.secrets.iter().map(|secret| secret.expires_at).collect();
    assert_eq!(ends, [Some(NOW.after(DAY)), None]);
    assert_ne!(rotated.secrets[0].secret, rotated.secrets[1].secret);
    let again = file.rotate(&name, None, DAY, NOW.after(2 * DAY)).unwrap();
    assert_eq!(again.secrets.len(), 2, "what has ended is forgotten");
    assert_eq!(file.read().unwrap(), [again]);
    file.delete(&name).unwrap();
    assert_eq!(file.delete(&name).unwrap_err().code(), "webhook_not_found");
    assert_eq!(file.read().unwrap(), []);
}

/// S35.
#[test]
fn mutated_hook_files_are_refused_or_read_and_never_panic() {
    let directory = tempfile::tempdir().unwrap();
    let file = WebhookFile::at(directory.path().join(WEBHOOKS_FILE));
    file.create(wanted("a", Format::Standard), NOW).unwrap();
    file.create(wanted("b", Format::stripe()), NOW).unwrap();
    let whole = std::fs::read(file.path()).unwrap();
    onward_testkit::mutate("webhook files", &[whole], |bytes| file.parse(bytes).is_ok()).assert_refuses();
}

#[test]
fn a_secret_of_the_sender_must_be_usable_and_not_guessable() {
    let directory = tempfile::tempdir().unwrap();
    let file = WebhookFile::at(directory.path().join(WEBHOOKS_FILE));
    let with = |format: Format, secret: &str| NewWebhook { secret: Some(Secret::new(secret)), ..wanted("a", format) };
    for (format, secret) in [(Format::Standard, "whsec_!"), (Format::Standard, "whsec_AAAA"), (Format::github(), "short")] {
        assert_eq!(file.create(with(format, secret), NOW).unwrap_err().code(), "webhook_secret_invalid", "{secret}");
    }
    let made = file.create(with(Format::stripe(), "whsec_0123456789abcdef"), NOW).unwrap();
    assert_eq!(made.secrets[0].secret.reveal(), "whsec_0123456789abcdef");
}

/// HK2, HK4.
#[test]
fn an_invalid_webhook_file_is_refused_without_revealing_its_content() {
    let directory = tempfile::tempdir().unwrap();
    let file = WebhookFile::at(directory.path().join(WEBHOOKS_FILE));
    assert!(file.read().unwrap_err().is_missing());
    file.create(wanted("a", Format::Standard), NOW).unwrap();
    let whole = std::fs::read_to_string(file.path()).unwrap();
    let unknown = whole.replace("\"version\": 1", "\"version\": 1, \"whsec_SECRET\": 1");
    for text in ["", "{}", &whole[..whole.len() / 2], &whole.replace("\"version\": 1", "\"version\": 2"), &unknown] {
        std::fs::write(file.path(), text).unwrap();
        let error = file.read().unwrap_err();
        assert!(error.code() == "webhook_file_unusable" && !error.to_string().contains("SECRET"), "{error}");
        assert!(file.create(wanted("b", Format::Standard), NOW).is_err(), "a broken file is not overwritten");
    }
}
