//! `SUMMARY.md`: the sections and the order of the pages.

/// The sections of the book.
#[derive(Debug, PartialEq)]
pub struct Summary {
    pub sections: Vec<Section>,
}

#[derive(Debug, PartialEq)]
pub struct Section {
    pub title: String,
    pub entries: Vec<Entry>,
}

/// A page in the navigation.
#[derive(Debug, PartialEq)]
pub struct Entry {
    /// Markdown.
    pub title: String,
    /// Path below `docs/`.
    pub path: String,
    pub children: Vec<Entry>,
}

impl Summary {
    /// Reads headings (`# Guides`) and entries (`- [Title](path.md)`), indented below another entry or not.
    pub fn parse(text: &str) -> Summary {
        let mut sections: Vec<Section> = Vec::new();
        for line in text.lines() {
            if let Some(title) = line.strip_prefix("# ").filter(|title| *title != "Summary") {
                sections.push(Section { title: title.to_owned(), entries: Vec::new() });
            }
            let link = line.trim_start().strip_prefix("- [").and_then(|rest| rest.strip_suffix(')')?.rsplit_once("]("));
            let (Some((title, path)), Some(section)) = (link, sections.last_mut()) else { continue };
            let entry = Entry { title: title.to_owned(), path: path.to_owned(), children: Vec::new() };
            match section.entries.last_mut().filter(|_| line.starts_with(' ')) {
                Some(parent) => parent.children.push(entry),
                None => section.entries.push(entry),
            }
        }
        Summary { sections }
    }

    /// Returns all entries in reading order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.sections.iter().flat_map(|section| &section.entries);
        entries.flat_map(|entry| std::iter::once(entry).chain(&entry.children))
    }
}
