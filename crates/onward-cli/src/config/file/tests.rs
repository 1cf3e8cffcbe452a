use super::*;

fn error_of(text: &str) -> (usize, String, Option<String>) {
    let (at, why, hint) = parse(text).unwrap_err();
    (line_of(text, at), why, hint)
}

/// S35. Every error has a valid position in the text.
#[test]
fn mutated_settings_are_refused_or_read_and_never_panic() {
    let text = "url = \"http://x\"\n\n[limits]\nstreams_max = 7\n[models.fast]\nprovider = \"x\"\n";
    let counts = onward_testkit::mutate("settings", &[text.as_bytes().to_vec()], |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        match parse(text) {
            Ok(values) => {
                assert!(values.values().all(|(_, at)| line_of(text, *at) >= 1), "{text:?}");
                true
            }
            Err((at, why, _)) => {
                assert!(line_of(text, at) >= 1 && !why.is_empty(), "{text:?}");
                false
            }
        }
    });
    counts.assert_refuses();
}

#[test]
fn values_have_names_and_lines() {
    let text = "url = \"http://x\"\n\n[limits]\nstreams_max = 7\n";
    let values = parse(text).unwrap();
    assert_eq!(values["url"].0, "http://x");
    assert_eq!((values["limits.streams_max"].0.as_str(), line_of(text, values["limits.streams_max"].1)), ("7", 4));
}

#[test]
fn a_list_is_read_as_the_text_with_commas() {
    let origins =
        |value: &str| parse(&format!("[server]\ncors_origins = {value}")).map(|values| values["server.cors_origins"].0.clone());
    assert_eq!(origins("[\"http://a\", \"http://b\"]").unwrap(), "http://a,http://b");
    assert_eq!(origins("\"http://a, http://b\"").unwrap(), "http://a, http://b");
    let wrong = |value: &str| origins(value).unwrap_err().1;
    assert_eq!(wrong("[1]"), "`server.cors_origins` must be a list of strings without commas");
    assert_eq!(wrong("[\"http://a,http://b\"]"), wrong("[1]"));
    assert_eq!(wrong("true"), "`server.cors_origins` must be a list of strings, or one string with commas");
}

#[test]
fn an_unknown_line_is_reported_with_its_number() {
    let hint = |text: &str| Some(format!("did you mean `{text}`?"));
    assert_eq!(error_of("\nurll = \"x\""), (2, "unknown setting `urll`".to_owned(), hint("url")));
    assert_eq!(error_of("[server]\nlisten_ = 1").2, hint("server.listen"));
    assert_eq!(error_of("listen = \"x\"").2, hint("server.listen"), "in the wrong table");
    assert_eq!(error_of("something_else_altogether = 1").2, None);
    assert_eq!(error_of("[limits]\nstreams_max = [1]").1, "`limits.streams_max` must be a string or an integer");
    assert!(error_of("key = \"onw_secret\"").1.contains("secret"));
    assert_eq!(error_of("url = \n").0, 1);
    assert_eq!(error_of("[model.fast]\nprovider = \"x\"").2, hint("[models.fast]"));
}

#[test]
fn words_are_as_far_apart_as_their_letters() {
    assert_eq!(["", "url", "urls", "lru"].map(|word| levenshtein(word, "url")), [3, 0, 1, 2]);
}
