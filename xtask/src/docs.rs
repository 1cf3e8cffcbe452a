//! `cargo xtask docs`: the book of `docs/`, as HTML without scripts, in `target/book`.
//!
//! Owns the layout of the book. The page `docs/x/y.md` becomes `x/y.html`, with its source beside it for `llms.txt`. A file outside
//! of `docs/` that a page links to becomes part of the book below `repository/`. `docs/SUMMARY.md` lists the pages in their order;
//! pages that the index of their folder (`README.md`) links to follow it. Fails on a broken link, a missing file and a page that is
//! in neither list, and writes nothing then.

mod html;
mod page;
mod summary;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::repository::Repository;
use page::Page;
use summary::{Entry, Summary};

const FOLDER: &str = "docs/";
const SUMMARY: &str = "docs/SUMMARY.md";
const TITLE: &str = "Onward";
/// The first page.
const FRONT: &str = "README.md";
/// The page for language models, at the root of the book.
const LLMS: &str = "docs/llms.txt";

pub fn build(repository: &Repository) -> Result<()> {
    let book = Book::load(repository)?;
    let problems = book.problems(&|path| repository.root.join(path).exists());
    for problem in &problems {
        println!("docs: {problem}");
    }
    if !problems.is_empty() {
        bail!("{} problems", problems.len());
    }
    let folder = repository.target().join("book");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    for (path, bytes) in book.files(&repository.root)? {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("docs: {} pages in {}", book.pages.len(), folder.join("index.html").display());
    Ok(())
}

/// All pages, by their path in the repository.
struct Book {
    title: String,
    summary: Summary,
    pages: BTreeMap<String, Page>,
}

impl Book {
    fn load(repository: &Repository) -> Result<Book> {
        let read =
            |path: &str| std::fs::read_to_string(repository.root.join(path)).with_context(|| format!("cannot read {path}"));
        let files = repository.files()?;
        let pages = files.iter().filter(|path| path.starts_with(FOLDER) && path.ends_with(".md") && *path != SUMMARY);
        let pages: Result<Vec<(String, String)>> =
            pages.map(String::as_str).chain([FRONT, LLMS]).map(|path| Ok((path.to_owned(), read(path)?))).collect();
        Ok(Book::new(TITLE, &read(SUMMARY)?, pages?, &|path| read(path).ok()))
    }

    /// Makes a book of pages, and of the Markdown files outside of `docs/` that they link to.
    fn new(title: &str, summary: &str, pages: Vec<(String, String)>, read: &dyn Fn(&str) -> Option<String>) -> Book {
        let mut book = Book { title: title.to_owned(), summary: Summary::parse(summary), pages: BTreeMap::new() };
        let mut open = pages;
        while let Some((path, text)) = open.pop() {
            let page = Page::parse(&path, text);
            let linked = page.links.iter().filter_map(|link| link.path.clone()).filter(|target| target.ends_with(".md"));
            for target in linked.filter(|target| target != SUMMARY && !target.starts_with(FOLDER)) {
                let is_known = book.pages.contains_key(&target) || target == path || open.iter().any(|(path, _)| *path == target);
                if let Some(text) = (!is_known).then(|| read(&target)).flatten() {
                    open.push((target, text));
                }
            }
            book.pages.insert(path, page);
        }
        book.add_children();
        book
    }

    /// Adds the pages of a folder to the entry of its index, if the index links to them.
    fn add_children(&mut self) {
        for entry in self.summary.sections.iter_mut().flat_map(|section| &mut section.entries) {
            let index = format!("{FOLDER}{}", entry.path);
            let (Some(page), Some(folder)) = (self.pages.get(&index), index.strip_suffix("README.md")) else { continue };
            let mut linked: Vec<&String> = page.links.iter().filter_map(|link| link.path.as_ref()).collect();
            linked.retain(|path| path.starts_with(folder) && **path != index && self.pages.contains_key(*path));
            linked.sort();
            linked.dedup();
            entry.children = linked.into_iter().map(|path| Entry::new(self.pages[path].title(), &path[FOLDER.len()..])).collect();
        }
    }

    /// Returns one line for each broken link, missing file, and page that is not in the summary.
    fn problems(&self, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
        let listed: Vec<String> = self.summary.entries().map(|entry| format!("{FOLDER}{}", entry.path)).collect();
        let mut problems = Vec::new();
        for (position, path) in listed.iter().enumerate() {
            if !self.pages.contains_key(path) {
                problems.push(format!("{SUMMARY} lists {path}, which does not exist"));
            }
            if listed[..position].contains(path) {
                problems.push(format!("{SUMMARY} lists {path} twice"));
            }
        }
        for (path, page) in &self.pages {
            if path.starts_with(FOLDER) && path != LLMS && !listed.contains(path) {
                problems.push(format!("{path} is neither in {SUMMARY} nor in the index of its folder"));
            }
            problems.extend(page.links.iter().filter_map(|link| {
                let why = self.fault(path, link, exists)?;
                Some(format!("{path}: the link {} {why}", link.text))
            }));
        }
        problems
    }

    fn fault(&self, from: &str, link: &page::Link, exists: &dyn Fn(&str) -> bool) -> Option<String> {
        let Some(path) = &link.path else { return Some("leaves the repository".to_owned()) };
        let target = self.pages.get(path);
        if target.is_none() && !exists(path) {
            return Some(format!("leads to {path}, which does not exist"));
        }
        let anchor = link.anchor.as_ref()?;
        let has_anchor = target.is_some_and(|page| page.anchors.contains(anchor));
        (!has_anchor).then(|| format!("leads to a heading that {} does not have", if path == from { "the page" } else { path }))
    }

    /// Returns the files of the book: pages with their sources, and linked files.
    fn files(&self, root: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut files = BTreeMap::from([("book.css".to_owned(), html::STYLE.as_bytes().to_vec())]);
        for (path, page) in &self.pages {
            for target in page.links.iter().filter_map(|link| link.path.as_ref()) {
                if !self.pages.contains_key(target) && target != SUMMARY && root.join(target).is_file() {
                    let bytes = std::fs::read(root.join(target)).with_context(|| format!("cannot read {target}"))?;
                    files.insert(address(target), bytes);
                }
            }
            if path == LLMS {
                files.insert("llms.txt".to_owned(), page.with_links(source).into_bytes());
                continue;
            }
            files.insert(source(path), page.text.clone().into_bytes());
            files.insert(address(path), html::page(self, path, page).into_bytes());
        }
        Ok(files)
    }
}

/// Returns the address in the book of a file of the repository.
fn address(path: &str) -> String {
    match path.strip_suffix(".md") {
        _ if path == FRONT || path == SUMMARY => "index.html".to_owned(),
        Some(page) => format!("{}.html", place(page)),
        None if path.ends_with(".rs") => format!("{}.txt", place(path)), // shown by browsers
        None => place(path),
    }
}

/// Returns the address of the source of a page, which language models read.
fn source(path: &str) -> String {
    if path.ends_with(".md") { place(path) } else { address(path) }
}

fn place(path: &str) -> String {
    path.strip_prefix(FOLDER).map_or_else(|| format!("repository/{path}"), str::to_owned)
}
