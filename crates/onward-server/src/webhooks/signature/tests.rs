use axum::http::{HeaderName, HeaderValue};
use onward_core::Namespace;

use super::super::entry::{WebhookSecret, WebhookTarget};
use super::*;

const NOW: Timestamp = Timestamp(1_614_265_330_000);

fn webhook(format: Format, secrets: &[(&str, Option<Timestamp>)]) -> WebhookEntry {
    let secret = |(text, expires_at): &(&str, Option<Timestamp>)| WebhookSecret {
        secret: Secret::new(*text),
        created_at: NOW,
        expires_at: *expires_at,
    };
    let kind = Name::new("order").unwrap();
    WebhookEntry {
        name: Name::new("h").unwrap(),
        namespace: Namespace::default(),
        format,
        target: WebhookTarget::Start { kind, version: None, run_id: None },
        secrets: secrets.iter().map(secret).collect(),
        created_at: NOW,
    }
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let header = |(name, value): &(&str, &str)| (HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
    pairs.iter().map(header).collect()
}

fn hmac_of(key: &[u8], content: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(content.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// RFC 4231, test case 2.
#[test]
fn the_signature_is_hmac_sha256() {
    let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert!(matches(b"Jefe", b"what do ya want for nothing?", &hex::decode(expected).unwrap()));
    assert!(!matches(b"Jefe", b"what do ya want for nothing!", &hex::decode(expected).unwrap()));
    assert!(!matches(b"Jefe", b"what do ya want for nothing?", &hex::decode(&expected[..32]).unwrap()), "a part of it is not it");
}

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY: &str = r#"{"test": 2432232314}"#;

fn standard_headers(id: &str, seconds: u64, secret: &str, body: &str) -> HeaderMap {
    let key = key_of(&Format::Standard, &Secret::new(secret)).unwrap();
    let signature = format!("v1,{}", STANDARD.encode(hmac_of(&key, &format!("{id}.{seconds}.{body}"))));
    headers(&[("webhook-id", id), ("webhook-timestamp", &seconds.to_string()), ("webhook-signature", &signature)])
}

/// The example of the specification, byte for byte.
#[test]
fn a_standard_webhook_is_believed() {
    let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    let given = headers(&[
        ("webhook-id", id),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ]);
    let webhook = webhook(Format::Standard, &[(SECRET, None)]);
    let signed = Signed { headers: &given, body: BODY.as_bytes() };
    assert_eq!(verify(&webhook, &signed, NOW), Some(id.to_owned()));
}

/// S31: replayed later, altered, unsigned, signed with another secret.
#[test]
fn what_is_not_signed_in_time_by_the_secret_is_not_believed() {
    let entry = webhook(Format::Standard, &[(SECRET, None)]);
    let at = NOW.0 / 1_000;
    let judge = |headers: &HeaderMap, body: &str| verify(&entry, &Signed { headers, body: body.as_bytes() }, NOW);
    let good = standard_headers("a", at, SECRET, BODY);
    assert_eq!(judge(&good, BODY), Some("a".to_owned()));
    assert_eq!(judge(&good, r#"{"test": 2432232315}"#), None, "altered");
    assert_eq!(judge(&HeaderMap::new(), BODY), None, "unsigned");
    assert_eq!(judge(&standard_headers("a", at, "whsec_AAAA", BODY), BODY), None, "somebody else");
    for (seconds, fits) in [(at - 300, true), (at + 300, true), (at - 301, false), (at + 301, false), (0, false)] {
        assert_eq!(judge(&standard_headers("a", seconds, SECRET, BODY), BODY).is_some(), fits, "{seconds}");
    }
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let mut without = good.clone();
        let taken = without.remove(name).unwrap();
        assert_eq!(judge(&without, BODY), None, "without {name}");
        without.append(HeaderName::from_static(name), taken.clone());
        without.append(HeaderName::from_static(name), taken);
        assert_eq!(judge(&without, BODY), None, "two of {name}");
    }
    for (name, wrong) in [
        ("webhook-id", "b"),
        ("webhook-timestamp", "1614265331"),
        ("webhook-timestamp", "now"),
        ("webhook-timestamp", "-1"),
        ("webhook-timestamp", "99999999999999999999"),
        ("webhook-signature", "v1,"),
        ("webhook-signature", "v1,not base64"),
        ("webhook-signature", "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ] {
        let mut altered = good.clone();
        altered.insert(HeaderName::from_static(name), HeaderValue::from_static(wrong));
        assert_eq!(judge(&altered, BODY), None, "{name}: {wrong}");
    }
    assert_eq!(judge(&standard_headers(&"i".repeat(256), at, SECRET, BODY), BODY), None, "an id is a name");
}

#[test]
fn while_secrets_change_both_are_good_and_several_signatures_are_looked_at() {
    let second = "whsec_c2Vjb25kIHNlY3JldA==";
    let at = NOW.0 / 1_000;
    let rotating = webhook(Format::Standard, &[(SECRET, Some(NOW.after(WINDOW))), (second, None)]);
    let judge =
        |headers: &HeaderMap, now: Timestamp| verify(&rotating, &Signed { headers, body: BODY.as_bytes() }, now).is_some();
    let (old, new) = (standard_headers("a", at, SECRET, BODY), standard_headers("a", at, second, BODY));
    assert!(judge(&old, NOW) && judge(&new, NOW));
    assert!(!judge(&old, NOW.after(WINDOW)) && judge(&new, NOW.after(WINDOW)), "the old one has ended");
    let both = format!("v1,AAAA v1a,ignored {}", new["webhook-signature"].to_str().unwrap());
    let mut several = new.clone();
    several.insert("webhook-signature", HeaderValue::try_from(both).unwrap());
    assert!(judge(&several, NOW));
}

#[test]
fn github_signs_the_body_and_an_unsigned_delivery_id_changes_nothing() {
    let entry = webhook(Format::github(), &[("It's a Secret to Everybody", None)]);
    let body = "Hello, World!";
    // The example of GitHub's documentation.
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let given = headers(&[("X-Hub-Signature-256", signature), ("X-GitHub-Delivery", "72d3162e")]);
    let judge = |headers: &HeaderMap, body: &str| verify(&entry, &Signed { headers, body: body.as_bytes() }, NOW);
    let id = judge(&given, body).unwrap();
    assert_eq!(id, "dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f");
    let again = headers(&[("X-Hub-Signature-256", signature), ("X-GitHub-Delivery", "0ther")]);
    assert_eq!(judge(&again, body), Some(id), "a new name makes no new request of an old one (HK3)");
    assert_eq!(judge(&given, "Hello, World?"), None);
    let bare = headers(&[("X-Hub-Signature-256", &signature[7..]), ("X-GitHub-Delivery", "72d3162e")]);
    assert_eq!(judge(&bare, body), None, "the prefix belongs to it");
}

#[test]
fn stripe_signs_time_and_body_and_names_the_event_in_the_body() {
    let entry = webhook(Format::stripe(), &[("whsec_test", None)]);
    let (at, body) = (NOW.0 / 1_000, r#"{"id": "evt_1", "object": "event"}"#);
    let sign = |seconds: u64, body: &str| hex_of(&hmac_of(b"whsec_test", &format!("{seconds}.{body}")));
    let given =
        |seconds: u64, signature: &str| headers(&[("Stripe-Signature", &format!("t={seconds}, v1=00,v1={signature},v0=11"))]);
    let judge = |headers: &HeaderMap, body: &str| verify(&entry, &Signed { headers, body: body.as_bytes() }, NOW);
    assert_eq!(judge(&given(at, &sign(at, body)), body), Some("evt_1".to_owned()));
    assert_eq!(judge(&given(at + 1, &sign(at, body)), body), None, "the time is signed");
    assert_eq!(judge(&given(at - 301, &sign(at - 301, body)), body), None, "stale");
    assert_eq!(judge(&given(at, &sign(at, "[]")), "[]"), None, "no id");
}

#[test]
fn a_body_without_an_id_is_known_by_its_content() {
    let Format::Custom(custom) = Format::github() else { panic!() };
    let format =
        Format::Custom(Box::new(Custom { encoding: Encoding::Base64, prefix: String::new(), id: IdAt::Body, ..*custom }));
    let entry = webhook(format, &[("s", None)]);
    let judge = |body: &str| {
        let given = headers(&[("X-Hub-Signature-256", &STANDARD.encode(hmac_of(b"s", body)))]);
        verify(&entry, &Signed { headers: &given, body: body.as_bytes() }, NOW).unwrap()
    };
    assert_eq!(judge("1"), judge("1"));
    assert_ne!(judge("1"), judge("2"));
}
