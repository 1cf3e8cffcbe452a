//! Reads YAML 1.2 or JSON into a tree of nodes with positions.
//!
//! Invariant FY1: reading takes time and memory in proportion to a text of [`BYTES_MAX`] at most: there are no aliases, and depth
//! and nodes are limited before a node is created.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};
use serde::Serialize;
use serde_json::{Map, Value};

use super::problem::{Problem, Problems, Severity};
use super::scalar::{Plain, resolve};
use super::source::Source;

/// Maximum size of a document.
pub const BYTES_MAX: usize = 1024 * 1024;
/// Maximum depth of lists and maps in each other.
pub const DEPTH_MAX: usize = 64;
/// Maximum number of keys and values.
pub const NODES_MAX: usize = 100_000;

/// A position in a document: line and column, in characters, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SourcePosition {
    pub line: usize,
    pub column: usize,
}

/// A value with its position.
#[derive(Debug, Clone)]
pub(crate) struct YamlNode {
    pub at: SourcePosition,
    pub kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Scalar {
        value: Value,
        style: ScalarStyle,
    },
    List(Vec<YamlNode>),
    Map(Vec<Entry>),
    /// Something with a problem that is already listed.
    Broken,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub key: String,
    pub key_at: SourcePosition,
    pub node: YamlNode,
}

/// A node with its path.
#[derive(Debug, Clone)]
pub(crate) struct Place<'a> {
    pub node: &'a YamlNode,
    pub path: String,
}

impl YamlNode {
    /// Returns the value of a key of a map.
    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        let Kind::Map(entries) = &self.kind else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// Returns the text of a scalar that is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { value: Value::String(text), .. } => Some(text),
            _ => None,
        }
    }

    /// Returns the JSON value.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Scalar { value, .. } => value.clone(),
            Kind::List(items) => items.iter().map(YamlNode::to_value).collect(),
            Kind::Map(entries) => {
                Value::Object(entries.iter().map(|entry| (entry.key.clone(), entry.node.to_value())).collect::<Map<_, _>>())
            }
            Kind::Broken => Value::Null,
        }
    }

    /// Returns whether it has something in it that could not be read.
    pub fn is_broken(&self) -> bool {
        match &self.kind {
            Kind::Scalar { .. } => false,
            Kind::List(items) => items.iter().any(YamlNode::is_broken),
            Kind::Map(entries) => entries.iter().any(|entry| entry.node.is_broken()),
            Kind::Broken => true,
        }
    }

    /// Returns what it is, for messages.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Scalar { value: Value::Null, .. } => "nothing".to_owned(),
            Kind::Scalar { value: Value::Bool(value), .. } => format!("`{value}`"),
            Kind::Scalar { value: Value::Number(number), .. } => format!("the number {number}"),
            Kind::Scalar { .. } => "a text".to_owned(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a map".to_owned(),
            Kind::Broken => "something that cannot be read".to_owned(),
        }
    }
}

impl<'a> Place<'a> {
    /// Returns the place of the whole document.
    pub fn root(node: &'a YamlNode) -> Place<'a> {
        Place { node, path: String::new() }
    }

    /// Returns the place of the value of a key.
    pub fn field(&self, key: &str) -> Option<Place<'a>> {
        self.node.get(key).map(|node| self.below(key, node))
    }

    /// Returns the place of the value of a key, or this place.
    pub fn field_or_self(&self, key: &str) -> Place<'a> {
        self.field(key).unwrap_or_else(|| self.clone())
    }

    /// Returns the place of a node that is the value of a key.
    pub fn below(&self, key: &str, node: &'a YamlNode) -> Place<'a> {
        let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'));
        let path = match (plain, self.path.is_empty()) {
            (true, true) => key.to_owned(),
            (true, false) => format!("{}.{key}", self.path),
            (false, _) => format!("{}[{key:?}]", self.path),
        };
        Place { node, path }
    }

    /// Returns the places of the items of a list.
    pub fn items(&self) -> impl Iterator<Item = Place<'a>> + use<'a> {
        let items: &'a [YamlNode] = match &self.node.kind {
            Kind::List(items) => items,
            _ => &[],
        };
        let path = self.path.clone();
        items.iter().enumerate().map(move |(at, node)| Place { node, path: format!("{path}[{at}]") })
    }

    /// Returns the place of an item of a list, or this place.
    pub fn item_or_self(&self, at: usize) -> Place<'a> {
        match &self.node.kind {
            Kind::List(items) if at < items.len() => Place { node: &items[at], path: format!("{}[{at}]", self.path) },
            _ => self.clone(),
        }
    }

    /// Returns the entries of a map.
    pub fn entries(&self) -> &'a [Entry] {
        match &self.node.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }
}

/// Reads the only document of a text. Adds what is wrong; `None` if there is no document that can be read to its end.
pub(crate) fn read(source: &Source, problems: &mut Problems) -> Option<YamlNode> {
    let mut reader = YamlReader { source, problems, open: Vec::new(), root: None, nodes: 0, documents: 0 };
    reader.read()?;
    if reader.root.is_none() && reader.documents == 0 {
        reader.problem(
            "empty_document",
            SourcePosition { line: 1, column: 1 },
            "the document is empty",
            "begin with `flow: NAME` and `steps:`",
        );
    }
    reader.root
}

/// A list or map whose end has not been read.
enum Open {
    List(YamlNode),
    /// With the key whose value comes next, and all keys.
    Map(YamlNode, Option<(String, SourcePosition)>, HashMap<String, SourcePosition>),
}

struct YamlReader<'a, 'p> {
    source: &'a Source,
    problems: &'p mut Problems,
    open: Vec<Open>,
    root: Option<YamlNode>,
    nodes: usize,
    documents: usize,
}

impl YamlReader<'_, '_> {
    fn problem(&mut self, code: &'static str, at: SourcePosition, message: impl Into<String>, hint: &str) {
        let problem = Problem::new(Severity::Error, code, at, &self.path(), message);
        self.problems.add(if hint.is_empty() { problem } else { problem.hint(hint) });
    }

    /// Returns the path of the value that comes next.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match open {
                Open::List(YamlNode { kind: Kind::List(items), .. }) => path.push_str(&format!("[{}]", items.len())),
                Open::Map(_, Some((key, _)), _) if path.is_empty() => path.push_str(key),
                Open::Map(_, Some((key, _)), _) => path.push_str(&format!(".{key}")),
                _ => {}
            }
        }
        path
    }

    /// Reads all events; `None` after a problem that makes the rest unreadable.
    fn read(&mut self) -> Option<()> {
        let mut parser = Parser::new_from_str(self.source.text());
        while let Some(event) = parser.next_event() {
            let (event, span) = match event {
                Ok(event) => event,
                Err(error) => {
                    self.syntax(error.marker(), error.info());
                    return None;
                }
            };
            let at = self.position(span.start);
            match event {
                Event::DocumentStart(_) => {
                    self.documents += 1;
                    if self.documents > 1 {
                        self.problem("several_documents", at, "the file has several documents", "write one flow per file");
                        return Some(());
                    }
                }
                Event::Alias(_) => {
                    self.problem("alias", at, "aliases are not supported", "write the value again, without `*`");
                    self.add(YamlNode { at, kind: Kind::Broken })?;
                }
                Event::Scalar(text, style, anchor, tag) => {
                    self.marks(at, anchor, tag.is_some());
                    self.scalar(at, &text, style)?;
                }
                Event::SequenceStart(anchor, tag) => {
                    self.marks(at, anchor, tag.is_some());
                    self.begin(at, Open::List(YamlNode { at, kind: Kind::List(Vec::new()) }))?;
                }
                Event::MappingStart(anchor, tag) => {
                    self.marks(at, anchor, tag.is_some());
                    self.begin(at, Open::Map(YamlNode { at, kind: Kind::Map(Vec::new()) }, None, HashMap::new()))?;
                }
                Event::SequenceEnd | Event::MappingEnd => match self.open.pop()? {
                    Open::List(node) | Open::Map(node, ..) => self.put(node),
                },
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            }
        }
        Some(())
    }

    fn position(&self, marker: Marker) -> SourcePosition {
        self.source.position(marker.line(), marker.col())
    }

    /// Refuses anchors and tags.
    fn marks(&mut self, at: SourcePosition, anchor: usize, tag: bool) {
        if anchor > 0 {
            self.problem("anchor", at, "anchors are not supported", "remove the `&name`");
        }
        if tag {
            self.problem("tag", at, "tags are not supported", "remove the `!tag`; quote what is a text");
        }
    }

    fn begin(&mut self, at: SourcePosition, open: Open) -> Option<()> {
        if let Some(Open::Map(_, None, _)) = self.open.last() {
            let hint = "quote a template: \"{{ .. }}\"";
            self.problem("invalid_key", at, "a list or a map cannot be a key", hint);
            return None;
        }
        if self.open.len() >= DEPTH_MAX {
            self.problem("too_deep", at, format!("the document nests deeper than {DEPTH_MAX} lists and maps"), "");
            return None;
        }
        self.count(at)?;
        self.open.push(open);
        Some(())
    }

    fn count(&mut self, at: SourcePosition) -> Option<()> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            self.problem("too_many_nodes", at, format!("the document has more than {NODES_MAX} keys and values"), "");
            return None;
        }
        Some(())
    }

    fn scalar(&mut self, at: SourcePosition, text: &str, style: ScalarStyle) -> Option<()> {
        if let Some(Open::Map(_, key @ None, keys)) = self.open.last_mut() {
            *key = Some((text.to_owned(), at));
            let first = keys.get(text).copied();
            keys.entry(text.to_owned()).or_insert(at);
            if let Some(first) = first {
                self.problem("duplicate_key", at, format!("the key `{text}` stands twice; first in line {}", first.line), "");
            } else if style == ScalarStyle::Plain && text == "<<" {
                self.problem("merge_key", at, "merge keys are not supported", "write the fields here");
            } else if style == ScalarStyle::Plain && text.is_empty() {
                self.problem("invalid_key", at, "a key is missing", "");
            }
            return self.count(at);
        }
        let kind = match style {
            ScalarStyle::Plain => self.plain(at, text),
            _ => Kind::Scalar { value: Value::String(text.to_owned()), style },
        };
        self.add(YamlNode { at, kind })
    }

    fn plain(&mut self, at: SourcePosition, text: &str) -> Kind {
        let style = ScalarStyle::Plain;
        match resolve(text) {
            Plain::Value(value) => Kind::Scalar { value, style },
            Plain::Remark(value, message) => {
                let problem = Problem::new(Severity::Warning, "ambiguous_number", at, &self.path(), message);
                self.problems.add(problem.hint("quote it if it is a text"));
                Kind::Scalar { value, style }
            }
            Plain::Refused(message) => {
                self.problem("invalid_number", at, message, "quote it if it is a text");
                Kind::Broken
            }
        }
    }

    fn add(&mut self, node: YamlNode) -> Option<()> {
        if let Some(Open::Map(_, None, _)) = self.open.last() {
            // An alias as a key.
            return None;
        }
        self.count(node.at)?;
        self.put(node);
        Some(())
    }

    /// Puts a complete node where it belongs.
    fn put(&mut self, node: YamlNode) {
        match self.open.last_mut() {
            Some(Open::List(YamlNode { kind: Kind::List(items), .. })) => items.push(node),
            Some(Open::Map(YamlNode { kind: Kind::Map(entries), .. }, key, _)) => {
                if let Some((key, key_at)) = key.take() {
                    entries.push(Entry { key, key_at, node });
                }
            }
            _ => self.root = Some(node),
        }
    }

    fn syntax(&mut self, marker: &Marker, info: &str) {
        let at = self.position(*marker);
        let line = self.source.line(at.line);
        let value = line.split_once(": ").map_or(line, |(_, value)| value).trim_start();
        let value = value.strip_prefix("- ").unwrap_or(value).trim_start();
        let hint = if info.contains("unknown anchor") {
            self.problem("alias", at, "aliases are not supported", "write the value again, without `*`");
            return;
        } else if value.starts_with('{') && value.contains("{{") {
            "quote a text that begins with a template: \"{{ .. }}\""
        } else if info.contains("tabs disallowed") || line.starts_with('\t') {
            "indent with spaces"
        } else if info.contains("mapping values are not allowed") {
            "quote a text that contains `: `, and write a space after the colon of a key"
        } else if info.contains("Unicode character escape") {
            "a surrogate (`\\ud800` to `\\udfff`) stands in pairs only"
        } else if info.starts_with("unexpected character") || value.starts_with(['@', '`', '%']) {
            "quote a text that begins with this character"
        } else {
            ""
        };
        self.problem("invalid_yaml", at, format!("the document is not valid YAML: {info}"), hint);
    }
}
