//! Escapes foreign text, so that it cannot move the cursor, fake a line or change the reading direction (S29).

use std::borrow::Cow;

/// Returns one line of visible text: control characters, line ends and invisible direction marks are escaped.
pub fn text(text: &str) -> Cow<'_, str> {
    escaped(text, is_harmful, |harmful| match harmful {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        other => format!("\\u{{{:x}}}", u32::from(other)),
    })
}

/// Escapes like [`text`], but keeps line ends, for texts of several lines that we composed.
pub fn lines(text: &str) -> String {
    escaped(text, |c| is_harmful(c) && c != '\n', |harmful| format!("\\u{{{:x}}}", u32::from(harmful))).into_owned()
}

/// Escapes everything harmful in JSON text as `\u…`. Outside of strings JSON has no such characters except line ends, which
/// become blanks.
pub fn json(text: String) -> String {
    let escaped = escaped(&text, is_harmful, |harmful| match harmful {
        '\n' | '\r' | '\t' => " ".to_owned(),
        other => other.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    });
    escaped.into_owned()
}

fn escaped<'a>(text: &'a str, harmful: impl Fn(char) -> bool, replace: impl Fn(char) -> String) -> Cow<'a, str> {
    if !text.contains(&harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmful(c) { out.push_str(&replace(c)) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Returns whether a character is a control character, direction mark, line separator or blank without width.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests;
