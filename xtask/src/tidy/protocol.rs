//! `docs/protocol-types.md`, made from the declarations in onward-core and onward-wire: every field of every frame and event in
//! JSON, as TypeScript types.
//!
//! Reads the macros `message!`, `choice!`, `numbered!` and `events!`. Types with a hand-written JSON form are in [`HEAD`]; a field
//! of any other type is an error, so the page cannot be incomplete.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, Result, bail};

use super::Sources;

pub const PAGE: &str = "docs/protocol-types.md";

const HEAD: &str = r#"# Worker protocol: types

Every field of every frame and event in JSON, as TypeScript types; [the protocol](protocol.md) has their meaning.
`cargo xtask tidy --write` makes this page from the code.

A field with `?` may be absent; all others are required.
Unknown fields are ignored.

## Basic types

```ts
/** The position of a call in the code: "7", "2.1.0". */
type CallId = string
/** RFC 3339 in UTC, with milliseconds: "2026-11-15T08:00:00.000Z". */
type Time = string
/** 32 hexadecimal digits. */
type Hash = string
/** A decimal number: "0.0125". */
type Dollars = string
/** User data. JSON, or bytes with a content type. */
type Payload = { json: any } | { base64: string, type?: string }
type Result = { Ok: Payload } | { Err: Failure }
/** The outcome of an attempt, or `heartbeat`; `spent` adds its cost to another report. */
type TaskReport =
  | { completed: Payload }
  | { failed: Failure }
  | "interrupted"
  | "not_started"
  | { heartbeat: { progress: Payload | null } }
  | { spent: { report: TaskReport, spend: AttemptSpend } }
/** One append to a log: a commit, or an input without one. */
interface Record {
  /** The index of the first event. */
  index: number
  at: Time
  commit?: CommitHeader
  events: Event[]
}
```
"#;

/// Types with a JSON form that is not declared with a macro.
const BASIC: &[(&str, &str)] = &[
    ("CallId", "CallId"),
    ("CommitId", "string"),
    ("Epoch", "number"),
    ("Hash", "Hash"),
    ("Index", "number"),
    ("Name", "string"),
    ("Namespace", "string"),
    ("PicoDollars", "Dollars"),
    ("Payload", "Payload"),
    ("Record", "Record"),
    ("RunId", "string"),
    ("String", "string"),
    ("TaskReport", "TaskReport"),
    ("Timestamp", "Time"),
    ("WorkerId", "string"),
    ("bool", "boolean"),
    ("i32", "number"),
    ("i64", "number"),
    ("u32", "number"),
    ("u64", "number"),
];

/// Types that [`HEAD`] uses.
const USED_IN_HEAD: &[&str] = &["AttemptSpend", "CommitHeader", "Failure"];

/// Events with a lower number are inputs.
const FIRST_OF_COMMITS: u32 = 32;

/// A declaration in the code.
#[derive(Debug, PartialEq)]
struct Declaration<'a> {
    path: &'a str,
    docs: Vec<&'a str>,
    content: Content<'a>,
}

#[derive(Debug, PartialEq)]
enum Content<'a> {
    Message(Vec<Field<'a>>),
    /// Variants with their names in JSON.
    Choice(Vec<Field<'a>>),
    /// Words.
    Numbered(Vec<&'a str>),
}

#[derive(Debug, PartialEq)]
struct Field<'a> {
    docs: Vec<&'a str>,
    name: &'a str,
    /// The type in the code.
    type_of: &'a str,
    has_default: bool,
    /// A number that is a text in JSON.
    is_text: bool,
}

/// An event: number, type in the code, name in JSON.
type EventLine<'a> = (u32, &'a str, &'a str);

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    match page(sources) {
        Ok(page) if sources.text(PAGE) == Some(&page) => {}
        Ok(_) => problems.push(format!("{PAGE} does not have the types of the code: cargo xtask tidy --write")),
        Err(error) => problems.push(format!("{PAGE} cannot be made: {error:#}")),
    }
}

pub fn page(sources: &Sources) -> Result<String> {
    let code = Code::read(sources);
    let mut page = HEAD.to_owned();
    let mut done = BTreeSet::new();
    for (heading, root) in [("Frames of a worker", "WorkerFrame"), ("Frames of a server", "ServerFrame")] {
        let frames = code.find(root, "")?;
        let Content::Choice(variants) = &frames.content else { bail!("{root} is not a choice") };
        let types: Vec<&str> = variants.iter().map(|variant| variant.type_of).collect();
        let types: Vec<&str> = std::iter::once(root).chain(types).collect();
        page += &code.section(heading, &types, frames.path, &mut done)?;
    }
    let (inputs, calls): (Vec<_>, Vec<_>) = code.events.iter().partition(|(number, ..)| *number < FIRST_OF_COMMITS);
    for (heading, events) in [("Events of commits", calls), ("Inputs", inputs)] {
        let types: Vec<&str> = events.iter().map(|(_, type_of, _)| *type_of).collect();
        page += &code.section(heading, &types, "", &mut done)?;
    }
    let union: Vec<String> =
        code.events.iter().map(|(_, type_of, name)| format!("  | ({{ type: \"{name}\" }} & {type_of})\n")).collect();
    let _ = write!(page, "\n## All events\n\n```ts\ntype Event =\n{}```\n", union.concat());
    let mut others: BTreeSet<(&str, &str)> = USED_IN_HEAD.iter().map(|name| (*name, "")).collect();
    let mut written = done.clone();
    loop {
        others.extend(written.iter().flat_map(|name| code.uses(name)));
        let fresh: Vec<(&str, &str)> = others.iter().copied().filter(|(name, _)| !written.contains(*name)).collect();
        if fresh.is_empty() {
            break;
        }
        written.extend(fresh.iter().map(|(name, _)| (*name).to_owned()));
    }
    let rest: Vec<&str> = others.iter().map(|(name, _)| *name).filter(|name| !done.contains(*name)).collect();
    page += &code.section("Other types", &rest, "", &mut done)?;
    Ok(page)
}

/// The declarations of both crates.
struct Code<'a> {
    declarations: BTreeMap<&'a str, Vec<Declaration<'a>>>,
    events: Vec<EventLine<'a>>,
}

impl<'a> Code<'a> {
    fn read(sources: &'a Sources) -> Code<'a> {
        let mut code = Code { declarations: BTreeMap::new(), events: Vec::new() };
        let is_ours =
            |path: &str| ["crates/onward-core/src/", "crates/onward-wire/src/"].iter().any(|start| path.starts_with(start));
        for (path, text) in sources.crate_sources().filter(|(path, _)| is_ours(path)) {
            for (name, declaration) in blocks(text).flat_map(|(keyword, block)| declarations(path, keyword, block)) {
                code.declarations.entry(name).or_default().push(declaration);
            }
            let events = text.split_once("\nevents! {\n").and_then(|(_, rest)| rest.split_once("\n}\n"));
            code.events.extend(events.into_iter().flat_map(|(lines, _)| lines.lines().filter_map(event)));
        }
        code
    }

    /// Returns the declaration of a type; of several with the name, the one in the file that uses it.
    fn find(&self, name: &str, path: &str) -> Result<&Declaration<'a>> {
        let found = self.declarations.get(name).with_context(|| format!("the type {name} is declared nowhere"))?;
        match &found[..] {
            [one] => Ok(one),
            several => several.iter().find(|one| one.path == path).with_context(|| format!("the type {name} is declared twice")),
        }
    }

    /// Returns the declared types in the fields of a type.
    fn uses(&self, name: &str) -> Vec<(&'a str, &'a str)> {
        let Some([declaration, ..]) = self.declarations.get(name).map(Vec::as_slice) else { return Vec::new() };
        let (Content::Message(fields) | Content::Choice(fields)) = &declaration.content else { return Vec::new() };
        let words = fields.iter().flat_map(|field| field.type_of.split(|c: char| !c.is_alphanumeric()));
        words.filter(|word| self.declarations.contains_key(word)).map(|word| (word, declaration.path)).collect()
    }

    fn section(&self, heading: &str, types: &[&str], path: &str, done: &mut BTreeSet<String>) -> Result<String> {
        let mut declarations = Vec::new();
        for name in types {
            if done.insert((*name).to_owned()) {
                declarations.push(self.typescript(name, self.find(name, path)?)?);
            }
        }
        Ok(format!("\n## {heading}\n\n```ts\n{}```\n", declarations.join("\n")))
    }

    fn typescript(&self, name: &str, declaration: &Declaration<'a>) -> Result<String> {
        let mut text = comment("", &declaration.docs);
        // Writing to a String cannot fail.
        match &declaration.content {
            Content::Message(fields) if fields.is_empty() => text += &format!("interface {name} {{}}\n"),
            Content::Message(fields) => {
                let _ = writeln!(text, "interface {name} {{");
                for field in fields {
                    let of = self.type_in_json(field.type_of).with_context(|| format!("{name}.{}", field.name))?;
                    let of = if field.is_text { "string".to_owned() } else { of };
                    let is_nullable = field.type_of.starts_with("Option<");
                    let mark = if is_nullable || field.has_default { "?" } else { "" };
                    let null = if is_nullable { " | null" } else { "" };
                    let _ = writeln!(text, "{}  {}{mark}: {of}{null}", comment("  ", &field.docs), field.name);
                }
                text += "}\n";
            }
            Content::Choice(variants) => {
                let _ = writeln!(text, "type {name} =");
                for variant in variants {
                    let of = self.type_in_json(variant.type_of).with_context(|| format!("{name}.{}", variant.name))?;
                    let _ = writeln!(text, "{}  | {{ {}: {of} }}", comment("  ", &variant.docs), variant.name);
                }
            }
            Content::Numbered(values) => {
                let _ = writeln!(text, "type {name} = {}", values.join(" | "));
            }
        }
        Ok(text)
    }

    fn type_in_json(&self, type_of: &str) -> Result<String> {
        if type_of == "Result<Payload, Failure>" {
            return Ok("Result".to_owned());
        }
        for (wrapper, suffix) in [("Option<", ""), ("Box<", ""), ("Vec<", "[]")] {
            if let Some(inner) = type_of.strip_prefix(wrapper).and_then(|rest| rest.strip_suffix('>')) {
                return Ok(self.type_in_json(inner)? + suffix);
            }
        }
        let name = type_of.rsplit("::").next().unwrap_or(type_of);
        if let Some((_, json)) = BASIC.iter().find(|(basic, _)| *basic == name) {
            return Ok((*json).to_owned());
        }
        let is_known = self.declarations.contains_key(name) || name == "Event";
        if !is_known {
            bail!("the type {type_of} has no JSON form in xtask/src/tidy/protocol.rs");
        }
        Ok(name.to_owned())
    }
}

/// Returns the macro calls of a file, each with its name.
fn blocks(text: &str) -> impl Iterator<Item = (&'static str, &str)> {
    ["message", "choice", "numbered"].into_iter().flat_map(move |keyword| {
        let start = format!("\n{keyword}! {{\n");
        let blocks = text.split(start.as_str()).skip(1).filter_map(|rest| Some((keyword, rest.split_once("\n}\n")?.0)));
        blocks.collect::<Vec<_>>()
    })
}

/// Returns the types of a macro call, with their names.
fn declarations<'a>(path: &'a str, keyword: &str, block: &'a str) -> Vec<(&'a str, Declaration<'a>)> {
    let mut found: Vec<(&str, Declaration)> = Vec::new();
    // Attributes of the next field, and a default of the whole type.
    let (mut docs, mut has_default, mut is_text, mut all_default) = (Vec::new(), false, false, false);
    for line in block.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim());
            continue;
        }
        has_default |= line.starts_with("#[serde(default");
        is_text |= line.starts_with("#[serde(") && line.contains("text_number");
        let header = line.split_once("struct ").or(line.split_once("enum ")).and_then(|(_, rest)| rest.split_once(" {"));
        if let Some((name, _)) = header {
            let content = match keyword {
                "message" => Content::Message(Vec::new()),
                "choice" => Content::Choice(Vec::new()),
                _ => Content::Numbered(Vec::new()),
            };
            found.push((name, Declaration { path, docs: std::mem::take(&mut docs), content }));
            all_default = std::mem::take(&mut has_default);
        }
        let Some((_, declaration)) = found.last_mut() else { continue };
        for item in items(header.map_or(line, |(_, fields)| fields)) {
            let docs = std::mem::take(&mut docs);
            let has_default = std::mem::take(&mut has_default) || all_default;
            let is_text = std::mem::take(&mut is_text);
            match (&mut declaration.content, item.split_once(": ")) {
                // A variant has its name in JSON after a slash.
                (Content::Numbered(words), _) => words.extend(item.split_once(" / ").map(|(_, word)| word)),
                (Content::Message(fields) | Content::Choice(fields), Some((name, type_of))) => {
                    let name = name.split_once(" / ").map_or(name, |(_, json)| json.trim_matches('"'));
                    fields.push(Field { docs, name, type_of, has_default, is_text });
                }
                _ => {}
            }
        }
    }
    found
}

/// Returns the fields or variants in a line, without their numbers: `1 => run: RunKey, 2 => generation: u32 }`.
fn items(line: &str) -> Vec<&str> {
    let mut parts = line.trim_end_matches([' ', '}', ',']).split(" => ").skip(1).peekable();
    let mut items = Vec::new();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        // The number of the next field follows.
        items.push(if is_last { part } else { part.rsplit_once(", ").map_or(part, |(item, _)| item) });
    }
    items
}

/// Reads a line of `events!`: `8 => TimerFired | "timer_fired",`.
fn event(line: &str) -> Option<EventLine<'_>> {
    let (number, rest) = line.trim().split_once(" => ")?;
    let type_of = rest.split(|c: char| !c.is_alphanumeric()).next()?;
    Some((number.parse().ok()?, type_of, rest.split('"').nth(1)?))
}

fn comment(indent: &str, docs: &[&str]) -> String {
    if docs.is_empty() {
        return String::new();
    }
    let text = docs.join(" ").replace("[`", "`").replace("`]", "`");
    format!("{indent}/** {text} */\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: &str = r#"
choice! {
    pub enum WorkerFrame {
        /// First.
        1 => Hello / "hello": Hello,
    }
}

choice! {
    pub enum ServerFrame {
        1 => Done / "done": Done,
    }
}

message! {
    pub struct Done {}
}

message! {
    /// A greeting.
    pub struct Hello {
        1 => worker: WorkerId,
        #[serde(with = "text_number")]
        4 => seed: u64,
        /// See [`Done`].
        #[serde(default)]
        2 => runs: Vec<Held>,
        3 => state: Option<State>,
    }
}
"#;

    const CORE: &str = r#"
message! {
    pub struct Held {
        1 => at: Timestamp,
    }
}

numbered! {
    pub enum State {
        0 => AtRest / "at_rest",
        1 => Moving / "moving",
    }
}

events! {
    1 => Held in Box<Held> | "held",
    32 => Done | "done",
}

message! {
    #[serde(default)]
    pub struct AttemptSpend { 1 => attempt: u32 }

    pub struct CommitHeader { 1 => n: u64, 2 => result: Result<Payload, Failure>, 3 => at: Option<Timestamp> }

    /// An error.
    pub struct Failure {}
}
"#;

    fn sources(wire: &str) -> Sources {
        Sources::of(&[("crates/onward-wire/src/worker.rs", wire), ("crates/onward-core/src/event.rs", CORE)])
    }

    #[test]
    fn types_are_those_of_the_code() {
        let page = page(&sources(WIRE)).unwrap();
        for part in [
            "type WorkerFrame =\n  /** First. */\n  | { hello: Hello }\n",
            "/** A greeting. */\ninterface Hello {\n  worker: string\n  seed: string\n  /** See `Done`. */\n  runs?: Held[]\n  state?: State | null\n}\n",
            "type State = \"at_rest\" | \"moving\"\n",
            "  | ({ type: \"held\" } & Held)\n",
            "interface AttemptSpend {\n  attempt?: number\n}\n",
            "interface CommitHeader {\n  n: number\n  result: Result\n  at?: Time | null\n}\n\n/** An error. */\ninterface Failure {}\n",
            "## Inputs\n\n```ts\ninterface Held {\n  at: Time\n}\n```\n",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert_eq!(page.matches("interface Done").count(), 1);
    }

    #[test]
    fn a_page_that_differs_and_a_type_without_a_json_form_are_refused() {
        let mut problems = Vec::new();
        check(&sources(WIRE), &mut problems);
        check(&sources(&WIRE.replace("WorkerId", "Instant")), &mut problems);
        assert_eq!(problems.len(), 2);
        assert!(problems[0].ends_with("cargo xtask tidy --write"), "{}", problems[0]);
        assert!(problems[1].contains("Hello.worker: the type Instant has no JSON form"), "{}", problems[1]);
    }
}
