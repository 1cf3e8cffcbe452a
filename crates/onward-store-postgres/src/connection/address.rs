//! Addresses of databases: extracts the TLS settings, the rest is left to the driver.
//!
//! Supports both forms of libpq: `postgres://user@host/database?sslmode=…` and `host=… user=… sslmode=…`. Must never display an
//! address: it may contain a password.

use percent_encoding::percent_decode_str;

use crate::connection::tls::TlsMode;

/// Returns the address without its TLS settings, and those settings.
pub(crate) fn split_tls_settings(address: &str) -> (String, TlsMode) {
    if address.contains("://") { of_url(address) } else { of_words(address) }
}

/// Stores a TLS setting; returns false for any other setting.
fn note(tls_settings: &mut TlsMode, name: &str, value: impl FnOnce() -> String) -> bool {
    match name {
        "sslmode" => tls_settings.mode = Some(value()),
        "sslrootcert" => tls_settings.root = Some(value()),
        _ => return false,
    }
    true
}

fn of_url(url: &str) -> (String, TlsMode) {
    let mut tls_settings = TlsMode::default();
    let Some((base, settings)) = url.split_once('?') else { return (url.to_owned(), tls_settings) };
    let decoded = |value: &str| percent_decode_str(value).decode_utf8_lossy().into_owned();
    let is_theirs = |setting: &&str| {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        !note(&mut tls_settings, name, || decoded(value))
    };
    let rest: Vec<&str> = settings.split('&').filter(is_theirs).collect();
    let rest = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    (rest, tls_settings)
}

/// Parses words separated by whitespace; values with whitespace are in single quotes, and a backslash escapes the next character.
fn of_words(text: &str) -> (String, TlsMode) {
    let (mut tls_settings, mut rest, mut remaining) = (TlsMode::default(), String::new(), text.trim_start());
    while !remaining.is_empty() {
        let (word, behind) = remaining.split_at(end_of_word(remaining));
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        if !note(&mut tls_settings, name.trim(), || unquoted(value.trim())) {
            rest = rest + word + " ";
        }
        remaining = behind.trim_start();
    }
    (rest.trim_end().to_owned(), tls_settings)
}

fn end_of_word(text: &str) -> usize {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\'' => is_quoted = !is_quoted,
            letter if letter.is_whitespace() && !is_quoted => return at,
            _ => {}
        }
    }
    text.len()
}

fn unquoted(value: &str) -> String {
    let inner = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value);
    let (mut out, mut letters) = (String::new(), inner.chars());
    while let Some(letter) = letters.next() {
        out.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    out
}

#[cfg(test)]
mod tests;
