//! ARCHITECTURE.md names files, folders and functions that exist.
//!
//! A name in backticks with a slash is a path: from the root, from `crates/`, or inside of a crate. In the code map it is a path of
//! the crate whose paragraph it is in. In the table "Where is …?", the functions beside a file must be defined in it.

use super::Sources;

const PAGE: &str = "ARCHITECTURE.md";
const MAP: &str = "## Code map";
const TABLE: &str = "## Where is";

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    let (mut section, mut package) = ("", None);
    for (number, line) in sources.text(PAGE).unwrap_or_default().lines().enumerate() {
        let mut wrong = |why: String| problems.push(format!("{PAGE}:{}: {why}", number + 1));
        if line.starts_with("## ") {
            (section, package) = (line, None);
        }
        let names: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let paths: Vec<&str> = names.iter().copied().filter(|name| is_path(name)).collect();
        if section == MAP && line.starts_with("`crates/") {
            package = names.first().copied();
        }
        for path in &paths {
            if !exists(sources, package, path) {
                wrong(format!("there is no {path}{}", package.map(|package| format!(" in {package}")).unwrap_or_default()));
            }
        }
        if !section.starts_with(TABLE) || !line.starts_with("| ") {
            continue;
        }
        for function in names.iter().filter(|name| !name.contains('/')) {
            let name = function.rsplit("::").next().unwrap_or_default();
            let is_defined = |path: &&str| {
                let text = sources.text(path).unwrap_or_default();
                [format!("fn {name}("), format!("fn {name}<"), format!("struct {name} "), format!("enum {name} ")]
                    .iter()
                    .any(|text_of| text.contains(text_of))
            };
            if !paths.iter().any(is_defined) {
                wrong(format!("`{function}` is in no file of its row"));
            }
        }
    }
}

/// Returns true for a path, and false for addresses, patterns and commands.
fn is_path(name: &str) -> bool {
    name.contains('/') && !name.starts_with('/') && !name.contains(['<', '*', ' ', '{', ':', '='])
}

fn exists(sources: &Sources, package: Option<&str>, path: &str) -> bool {
    let is_there = |path: &str| {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let files = [path.to_owned(), format!("{path}.rs")];
        files.iter().any(|file| sources.text(file).is_some()) || sources.texts(|file| file.starts_with(&folder)).next().is_some()
    };
    let inside = |package: &str| is_there(&format!("{package}/src/{path}")) || is_there(&format!("{package}/{path}"));
    let mut packages: Vec<&str> =
        sources.texts(|file| file.ends_with("/Cargo.toml")).filter_map(|(file, _)| file.strip_suffix("/Cargo.toml")).collect();
    if let Some(package) = package {
        packages.retain(|other| *other == package);
    }
    is_there(path) || is_there(&format!("crates/{path}")) || packages.into_iter().any(inside)
}

#[cfg(test)]
mod tests;
