//! Texts of a picture: cleaned, measured without a font, shortened and escaped.

/// The longest name or text that is kept, in characters.
const KEPT_MAX: usize = 300;

/// Returns a text on one line, without characters that would break a document or change the direction of what follows.
pub fn clean(text: &str) -> String {
    let mut cleaned = String::new();
    for c in text.chars().take(KEPT_MAX * 4) {
        if c.is_whitespace() || c.is_control() {
            if !cleaned.is_empty() && !cleaned.ends_with(' ') {
                cleaned.push(' ');
            }
        } else if !is_dropped(c) {
            cleaned.push(c);
        }
    }
    cleaned.truncate(cleaned.trim_end().len());
    match cleaned.char_indices().nth(KEPT_MAX) {
        Some((at, _)) => ended(&cleaned[..at]),
        None => cleaned,
    }
}

/// Returns a condition without the braces of a template.
pub fn condition(source: &str) -> String {
    let source = source.trim();
    let inner = source.strip_prefix("{{").and_then(|inner| inner.strip_suffix("}}")).unwrap_or(source);
    clean(inner)
}

/// Returns whether a character changes the direction of text or may not be in XML.
fn is_dropped(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fff0}'..='\u{ffff}')
        || (c as u32) & 0xfffe == 0xfffe
}

/// Cuts a text after at most `max` characters, with an ellipsis.
pub fn first_chars(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => {
            let end = text.char_indices().nth(max.saturating_sub(1)).map_or(0, |(at, _)| at);
            ended(&text[..end])
        }
    }
}

/// Cuts a text so that it is at most `max` wide at a font size, with an ellipsis.
pub fn fit(text: &str, max: f64, size: f64) -> String {
    if width(text, size) <= max {
        return text.to_owned();
    }
    let mut used = width("…", size);
    let end = text.char_indices().find(|(_, c)| {
        used += em(*c) * size;
        used > max
    });
    ended(&text[..end.map_or(0, |(at, _)| at)])
}

/// Adds an ellipsis, without leaving half of a joined character before it.
fn ended(text: &str) -> String {
    let joins = |c: char| c == ' ' || em(c) < 0.2;
    format!("{}…", text.trim_end_matches(joins))
}

/// Returns how wide a text is at most, in a usual sans-serif font.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

fn em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.33,
        ' ' | 'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '{' | '}' | '/' | '\\' | '-' | '"' | '`' | '*' => 0.43,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.98,
        'A'..='Z' | '&' | '_' | '+' | '<' | '>' | '=' | '~' | '^' | '#' => 0.74,
        ' '..='~' => 0.62,
        '…' => 1.0,
        '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200d}' | '\u{fe00}'..='\u{fe0f}' => 0.1,
        '\u{80}'..='\u{5ff}' => 0.8,
        '\u{600}'..='\u{10ff}' => 0.9,
        '\u{fdf0}'..='\u{fdff}' | '\u{12000}'..='\u{123ff}' => 4.0,
        '\u{1f000}'..='\u{1faff}' | '\u{2600}'..='\u{27bf}' => 1.4,
        _ => 1.1,
    }
}

/// Returns whether the width of a text depends much on the font, so that it must be clipped.
pub fn is_uncertain(text: &str) -> bool {
    text.chars().any(|c| c > '\u{24f}' && c != '…')
}

/// Appends a text to an XML document.
pub fn push_xml(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
}
