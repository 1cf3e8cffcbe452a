//! A page: its links, its headings, and its HTML.

use std::collections::BTreeSet;

use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd};

/// A page of the book.
pub struct Page {
    /// The Markdown source.
    pub text: String,
    path: String,
    pub links: Vec<Link>,
    /// The ids of the headings.
    pub anchors: BTreeSet<String>,
}

/// A link to a file of the repository.
#[derive(Debug, PartialEq)]
pub struct Link {
    /// The link as written.
    pub text: String,
    /// The file, by its path from the root of the repository; `None` if it is outside.
    pub path: Option<String>,
    pub anchor: Option<String>,
}

impl Page {
    pub fn parse(path: &str, text: String) -> Page {
        let (mut links, mut anchors) = (Vec::new(), BTreeSet::new());
        for event in with_anchors(&text) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    links.extend(Link::parse(path, &dest_url))
                }
                Event::Start(Tag::Heading { id: Some(id), .. }) => {
                    anchors.insert(id.into_string());
                }
                _ => {}
            }
        }
        Page { text, path: path.to_owned(), links, anchors }
    }

    /// Returns the source with every link to a file replaced.
    pub fn with_links(&self, replace: impl Fn(&str) -> String) -> String {
        let targets = self.links.iter().filter_map(|link| Some((link, link.path.as_deref()?)));
        targets.fold(self.text.clone(), |text, (link, path)| {
            let anchor = link.anchor.as_ref().map(|anchor| format!("#{anchor}")).unwrap_or_default();
            text.replace(&format!("]({})", link.text), &format!("]({}{anchor})", replace(path)))
        })
    }

    /// Returns the HTML of the content, with every link to a file replaced.
    pub fn html(&self, replace: impl Fn(&str) -> String) -> String {
        let mut hides_lines = false;
        let events = with_anchors(&self.text).into_iter().map(|event| match event {
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let target = Link::parse(&self.path, &dest_url).and_then(|link| {
                    let anchor = link.anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
                    Some(CowStr::from(replace(&link.path?) + &anchor))
                });
                Event::Start(Tag::Link { link_type, dest_url: target.unwrap_or(dest_url), title, id })
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                // Only the language: `rust,no_run` is an instruction for the tests.
                hides_lines = info.starts_with("rust");
                let language = info.split([',', ' ']).next().unwrap_or_default().to_owned();
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language.into())))
            }
            Event::End(TagEnd::CodeBlock) => {
                hides_lines = false;
                Event::End(TagEnd::CodeBlock)
            }
            Event::Text(text) if hides_lines => Event::Text(shown_lines(&text).into()),
            event => event,
        });
        let mut html = String::new();
        pulldown_cmark::html::push_html(&mut html, events);
        html
    }

    /// Returns the text of the first heading.
    pub fn title(&self) -> &str {
        self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(&self.path)
    }
}

impl Link {
    /// Returns `None` for links to other sites.
    fn parse(from: &str, text: &str) -> Option<Link> {
        if text.contains("://") || text.starts_with("mailto:") {
            return None;
        }
        let (file, anchor) = text.split_once('#').map_or((text, None), |(file, anchor)| (file, Some(anchor.to_owned())));
        let path = if file.is_empty() { Some(from.to_owned()) } else { resolve(from, file) };
        Some(Link { text: text.to_owned(), path, anchor })
    }
}

/// Resolves a relative path; `None` if it leaves the repository.
fn resolve(from: &str, to: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Parses Markdown and gives every heading an id.
fn with_anchors(text: &str) -> Vec<Event<'_>> {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let mut used = BTreeSet::new();
    for position in 0..events.len() {
        if !matches!(events[position], Event::Start(Tag::Heading { .. })) {
            continue;
        }
        let words = events[position..].iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
        let title: String = words
            .filter_map(|event| match event {
                Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
                _ => None,
            })
            .collect();
        let name = anchor(&title);
        let unique = (0..).map(|number| if number == 0 { name.clone() } else { format!("{name}-{number}") });
        let unique = unique.into_iter().find(|name| used.insert(name.clone())).unwrap_or(name);
        if let Event::Start(Tag::Heading { id, .. }) = &mut events[position] {
            *id = Some(unique.into());
        }
    }
    events
}

/// Returns the id of a heading, as code forges derive it.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// Leaves out lines that only doc tests need: `# use …`.
fn shown_lines(code: &str) -> String {
    code.split_inclusive('\n').filter(|line| !line.starts_with("# ") && *line != "#\n").collect()
}
