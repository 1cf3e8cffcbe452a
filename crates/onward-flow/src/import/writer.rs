//! Writes YAML and TOML with the keys in the order of the caller, and comments.

use serde_json::Value;

/// A YAML document that is written line by line.
#[derive(Debug, Default)]
pub(super) struct Yaml {
    text: String,
    /// Spaces before the next line.
    indent: usize,
    /// Whether the next line begins an item of a list.
    begins_item: bool,
}

impl Yaml {
    pub fn finish(self) -> String {
        self.text
    }

    fn begin(&mut self) {
        let indent = if self.begins_item { self.indent.saturating_sub(2) } else { self.indent };
        self.text.extend(std::iter::repeat_n(' ', indent));
        if std::mem::take(&mut self.begins_item) {
            self.text.push_str("- ");
        }
    }

    /// Writes a comment of one or more lines. Comments come before items, not into them.
    pub fn comment(&mut self, comment: &str) {
        let indent = if self.begins_item { self.indent.saturating_sub(2) } else { self.indent };
        for line in comment.lines() {
            self.text.extend(std::iter::repeat_n(' ', indent));
            self.text.push_str(format!("# {}", line.trim_end()).trim_end());
            self.text.push('\n');
        }
    }

    /// Writes a key with a value, a short list or map on one line.
    pub fn field(&mut self, key: &str, value: &Value) {
        self.begin();
        self.text.push_str(&format!("{}:", plain(key)));
        match value {
            Value::String(text) => self.text(text),
            Value::Object(fields) if !fields.is_empty() && flow_style(value).len() > 80 => {
                self.text.push('\n');
                self.indent += 2;
                for (key, value) in fields {
                    self.field(key, value);
                }
                self.indent -= 2;
            }
            other => self.text.push_str(&format!(" {}\n", flow_style(other))),
        }
    }

    /// Writes a text behind a key: as a block if it has several lines.
    fn text(&mut self, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        let is_block = lines.len() > 1
            && !text.contains('\r')
            && !text.chars().any(|char| char.is_control() && char != '\n')
            && !text.ends_with("\n\n")
            && lines[0].trim_start() == lines[0]
            && !lines[0].is_empty()
            && lines.iter().all(|line| line.trim_end() == *line)
            && !text.contains(['\u{85}', '\u{2028}', '\u{2029}', '\u{feff}']);
        if !is_block {
            self.text.push_str(&format!(" {}\n", scalar(text)));
            return;
        }
        self.text.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
        for line in lines {
            if !line.is_empty() {
                self.text.extend(std::iter::repeat_n(' ', self.indent + 2));
                self.text.push_str(line);
            }
            self.text.push('\n');
        }
    }

    /// Writes a key with something below it.
    pub fn open(&mut self, key: &str) {
        self.begin();
        self.text.push_str(&format!("{}:\n", plain(key)));
        self.indent += 2;
    }

    /// Ends what [`open`](Yaml::open) or [`item`](Yaml::item) began.
    pub fn close(&mut self) {
        self.begins_item = false;
        self.indent -= 2;
    }

    /// Begins an item of a list.
    pub fn item(&mut self) {
        self.begins_item = true;
        self.indent += 2;
    }
}

/// Writes a value on one line.
pub(super) fn flow_style(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow_style).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{}: {}", plain(key), flow_style(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// Writes a text as YAML: plain if nothing can mistake it, else in quotes.
pub(super) fn scalar(text: &str) -> String {
    let is_word = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.' | '/' | ' ');
    let begins_as_word = text.starts_with(|char: char| char.is_ascii_alphabetic());
    let is_reserved = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n" | "nan" | "inf"
    );
    match begins_as_word && text.chars().all(is_word) && !text.ends_with(' ') && !is_reserved {
        true => text.to_owned(),
        false => quoted(text),
    }
}

fn plain(key: &str) -> String {
    scalar(key)
}

/// Writes a text in quotes, as YAML, JSON and TOML read it.
pub(super) fn quoted(text: &str) -> String {
    let json = Value::String(text.to_owned()).to_string();
    // Line separators and deletions are allowed in JSON, but not in the others.
    json.replace('\u{7f}', "\\u007f").replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// Writes a key of TOML.
pub(super) fn toml_key(key: &str) -> String {
    let is_bare = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { quoted(key) }
}

/// Writes a list of texts as TOML.
pub(super) fn toml_list(items: &[String]) -> String {
    format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", "))
}

/// Writes a text as TOML, with line breaks as they are.
pub(super) fn toml_text(text: &str) -> String {
    let is_literal = text.contains('\n')
        && !text.contains("'''")
        && !text.ends_with('\'')
        && text.chars().all(|char| char == '\n' || char == '\t' || !char.is_control());
    if is_literal { format!("'''\n{text}'''") } else { quoted(text) }
}
