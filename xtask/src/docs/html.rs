//! The frame around a page: navigation, previous and next page. Works without scripts.

use std::fmt::Write;

use super::page::Page;
use super::summary::Entry;
use super::{Book, FOLDER, FRONT, address};

pub const STYLE: &str = include_str!("book.css");

/// Returns the whole document of a page.
pub fn page(book: &Book, path: &str, page: &Page) -> String {
    let own = address(path);
    let up = "../".repeat(own.matches('/').count());
    let current = path.strip_prefix(FOLDER).unwrap_or_default();
    let title = escape(&page.title().replace('`', ""));
    let heading = if path == FRONT { escape(&book.title) } else { format!("{title} - {}", escape(&book.title)) };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{heading}</title>\n\
         <link rel=\"stylesheet\" href=\"{up}book.css\">\n</head>\n<body>\n<nav>\n<a class=\"title\" href=\"{up}index.html\">{}</a>\n{}</nav>\n\
         <main>\n{}{}</main>\n</body>\n</html>\n",
        escape(&book.title),
        navigation(book, current, &up),
        page.html(|target| format!("{up}{}", address(target))),
        neighbors(book, path, &up),
    )
}

fn navigation(book: &Book, current: &str, up: &str) -> String {
    let mut html = String::new();
    for section in &book.summary.sections {
        // Writing to a String cannot fail.
        let _ = write!(html, "<h2>{}</h2>\n<ul>\n", escape(&section.title));
        for entry in &section.entries {
            let _ = write!(html, "<li>{}", link(entry, current, up));
            if !entry.children.is_empty() {
                let is_open = entry.path == current || entry.children.iter().any(|child| child.path == current);
                let open = if is_open { " open" } else { "" };
                let _ = write!(html, "\n<details{open}><summary>{} pages</summary>\n<ul>\n", entry.children.len());
                for child in &entry.children {
                    let _ = writeln!(html, "<li>{}</li>", link(child, current, up));
                }
                html += "</ul>\n</details>";
            }
            html += "</li>\n";
        }
        html += "</ul>\n";
    }
    html
}

fn link(entry: &Entry, current: &str, up: &str) -> String {
    let mark = if entry.path == current { " aria-current=\"page\"" } else { "" };
    let title = escape(&entry.title.replace('`', ""));
    format!("<a href=\"{up}{}\"{mark}>{title}</a>", address(&format!("{FOLDER}{}", entry.path)))
}

/// Returns links to the pages before and after a page.
fn neighbors(book: &Book, path: &str, up: &str) -> String {
    let entries: Vec<&Entry> = book.summary.entries().collect();
    let position = entries.iter().position(|entry| path.strip_prefix(FOLDER) == Some(&entry.path));
    let (before, after) = match position {
        Some(position) => (position.checked_sub(1), Some(position + 1)),
        None if path == FRONT => (None, Some(0)),
        None => (None, None),
    };
    let shown = |position: Option<usize>, class: &str| {
        let entry = position.and_then(|position| entries.get(position));
        entry.map_or_else(String::new, |entry| format!("<span class=\"{class}\">{}</span>", link(entry, "", up)))
    };
    format!("<footer>{}{}</footer>\n", shown(before, "before"), shown(after, "after"))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
