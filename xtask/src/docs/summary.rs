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
    /// The pages of its folder, if it is an index.
    pub children: Vec<Entry>,
}

impl Entry {
    pub fn new(title: &str, path: &str) -> Entry {
        Entry { title: title.to_owned(), path: path.to_owned(), children: Vec::new() }
    }
}

impl Summary {
    /// Reads headings (`# Guides`) and entries (`- [Title](path.md)`).
    pub fn parse(text: &str) -> Summary {
        let mut sections: Vec<Section> = Vec::new();
        for line in text.lines() {
            if let Some(title) = line.strip_prefix("# ").filter(|title| *title != "Summary") {
                sections.push(Section { title: title.to_owned(), entries: Vec::new() });
            }
            let link = line.strip_prefix("- [").and_then(|rest| rest.strip_suffix(')')?.rsplit_once("]("));
            if let (Some((title, path)), Some(section)) = (link, sections.last_mut()) {
                section.entries.push(Entry::new(title, path));
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
