//! A book is built from its pages, or not at all.

use super::*;

const SUMMARY_TEXT: &str = "# Summary\n\n# Guides\n\n- [One](one.md)\n- [Deep](deep/README.md)\n";

fn book(one: &str, two: &str) -> Book {
    let page = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let pages = vec![
        page("docs/one.md", one),
        page("docs/deep/two.md", two),
        page("docs/deep/README.md", "# Deep\n[two](two.md)\n"),
        page(FRONT, "# Front\n"),
        page(LLMS, "# Front\n"),
    ];
    let read = |path: &str| (path == "ARCHITECTURE.md").then(|| "# Architecture\n\n## Code map\n".to_owned());
    Book::new("Onward", SUMMARY_TEXT, pages, &read)
}

fn problems(one: &str, two: &str) -> Vec<String> {
    book(one, two).problems(&|path| path == "examples/hello.rs")
}

#[test]
fn links_to_pages_headings_and_files_are_in_order() {
    let one = "# One\n\n## It's `so`, too\n\n[a](#its-so-too) [b](deep/two.md#two) [c](../examples/hello.rs) [d](https://x.org/y)\n\
               [e](../ARCHITECTURE.md#code-map)\n\n```rust\n// [f](nowhere.md)\n```\n";
    assert_eq!(problems(one, "# Two\n\n[up](../one.md)\n"), Vec::<String>::new());
}

#[test]
fn broken_links_are_named() {
    assert_eq!(
        problems("# One\n[a](three.md)\n", ""),
        ["docs/one.md: the link three.md leads to docs/three.md, which does not exist"]
    );
    assert_eq!(problems("# One\n[a](#two)\n", ""), ["docs/one.md: the link #two leads to a heading that the page does not have"]);
    assert_eq!(
        problems("# One\n[a](deep/two.md#three)\n", "# Two\n"),
        ["docs/one.md: the link deep/two.md#three leads to a heading that docs/deep/two.md does not have"]
    );
    assert_eq!(problems("# One\n[a](../../x.md)\n", ""), ["docs/one.md: the link ../../x.md leaves the repository"]);
}

#[test]
fn pages_and_summary_must_agree() {
    let mut book = book("# One\n", "# Two\n");
    book.pages.insert("docs/three.md".to_owned(), Page::parse("docs/three.md", "# Three\n".to_owned()));
    book.pages.remove("docs/one.md");
    let expected = [
        "docs/SUMMARY.md lists docs/one.md, which does not exist",
        "docs/three.md is neither in docs/SUMMARY.md nor in the index of its folder",
    ];
    assert_eq!(book.problems(&|_| false), expected);
    book.summary =
        Summary::parse("# A\n- [Three](three.md)\n- [Three](three.md)\n- [Two](deep/two.md)\n- [Deep](deep/README.md)\n");
    assert_eq!(book.problems(&|_| false), ["docs/SUMMARY.md lists docs/three.md twice"]);
}

#[test]
fn a_page_has_its_navigation_and_links_to_other_pages() {
    let two =
        "# Two\n\n[up](../one.md#one) and [out](../../ARCHITECTURE.md)\n\n```rust,no_run\n# hidden();\nshown(\"<\");\n```\n";
    let book = book("# One\n", two);
    let html = html::page(&book, "docs/deep/two.md", &book.pages["docs/deep/two.md"]);
    for part in [
        "<title>Two - Onward</title>",
        "href=\"../book.css\"",
        "<a href=\"../one.html#one\">up</a>",
        "<a href=\"../repository/ARCHITECTURE.html\">out</a>",
        "<h1 id=\"two\">Two</h1>",
        "<pre><code class=\"language-rust\">shown(\"&lt;\");\n</code></pre>",
        "<a href=\"../deep/two.html\" aria-current=\"page\">Two</a>",
        "<details open>",
        "<span class=\"before\"><a href=\"../deep/README.html\">Deep</a></span>",
    ] {
        assert!(html.contains(part), "{part} is not in\n{html}");
    }
    assert!(!html.contains("hidden"));
}

#[test]
fn the_page_for_language_models_links_to_sources() {
    let page = Page::parse(LLMS, "- [One](one.md#a)\n- [Readme](../README.md)\n".to_owned());
    assert_eq!(page.with_links(source), "- [One](one.md#a)\n- [Readme](repository/README.md)\n");
}
