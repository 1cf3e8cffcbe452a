//! ARCHITECTURE.md names files, folders and functions that exist.
//!
//! A name in backticks with a slash is a path: from the root, from `crates/`, or inside of a crate. In the code map it is a path of
//! the crate whose paragraph it is in. In the table "Where is …?" and in the walks "Life of …", the functions beside a file must be
//! defined in it. The figures at the end of a walk are those of its lists.

use std::collections::BTreeSet;

use super::Sources;

const PAGE: &str = "ARCHITECTURE.md";
const MAP: &str = "## Code map";
const TABLE: &str = "## Where is";
const WALK: &str = "## Life of";

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    let (mut section, mut package) = ("", None);
    let mut walk = Walk::default();
    for (number, line) in sources.text(PAGE).unwrap_or_default().lines().enumerate() {
        let mut wrong = |why: String| problems.push(format!("{PAGE}:{}: {why}", number + 1));
        if line.starts_with("## ") {
            (section, package, walk) = (line, None, Walk::default());
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
        if section.starts_with(WALK) {
            walk.read(sources, line, &names).into_iter().for_each(&mut wrong);
        }
        if !section.starts_with(TABLE) || !line.starts_with("| ") {
            continue;
        }
        for function in names.iter().filter(|name| !name.contains('/')) {
            if !paths.iter().any(|path| defines(sources, path, function)) {
                wrong(format!("`{function}` is in no file of its row"));
            }
        }
    }
}

/// The functions of a walk, read line by line.
#[derive(Default)]
struct Walk<'a> {
    step: usize,
    /// Step, file and function.
    through: BTreeSet<(usize, &'a str, &'a str)>,
    beside: BTreeSet<(usize, &'a str, &'a str)>,
}

impl<'a> Walk<'a> {
    /// Reads a line; returns what is wrong with it.
    fn read(&mut self, sources: &Sources, line: &'a str, names: &[&'a str]) -> Option<String> {
        if let Some(step) = line.split_once(". ").and_then(|(number, _)| number.parse().ok()) {
            self.step = step;
        }
        if line.contains(" functions in ") {
            return self.compare(line);
        }
        let list = line.trim_start().strip_prefix("Beside: ");
        let functions = if list.is_some() { &mut self.beside } else { &mut self.through };
        let is_list = list.unwrap_or(line.trim_start()).starts_with('`') && names.first().is_some_and(|name| is_path(name));
        if !is_list {
            return None;
        }
        let mut file = "";
        let mut undefined = Vec::new();
        for &name in names {
            if is_path(name) {
                file = name;
                continue;
            }
            functions.insert((self.step, file, name));
            if !defines(sources, &format!("crates/{file}"), name) {
                undefined.push(format!("`{name}` is not in {file}"));
            }
        }
        (!undefined.is_empty()).then(|| undefined.join(", "))
    }

    /// Compares the figures of a line: of the whole way, of the way up to a step if it names one, and with the functions beside.
    fn compare(&self, line: &str) -> Option<String> {
        let mut expected = count(self.through.iter()).to_vec();
        if let Some((_, rest)) = line.split_once("(step ") {
            let last = rest.split(')').next().and_then(|step| step.parse().ok()).unwrap_or_default();
            expected.extend(count(self.through.iter().filter(|(step, ..)| *step <= last)));
            expected.push(last);
        }
        expected.extend(count(self.through.union(&self.beside)));
        let found = line.split(|character: char| !character.is_ascii_digit()).filter_map(|number| number.parse().ok());
        let found: Vec<usize> = found.collect();
        (found != expected).then(|| format!("the figures of the lists are {expected:?}, not {found:?}"))
    }
}

/// Returns the numbers of different functions and of their files.
fn count<'b, 'a: 'b>(functions: impl Iterator<Item = &'b (usize, &'a str, &'a str)>) -> [usize; 2] {
    let functions: BTreeSet<(&str, &str)> = functions.map(|(_, file, name)| (*file, *name)).collect();
    let files: BTreeSet<&str> = functions.iter().map(|(file, _)| *file).collect();
    [functions.len(), files.len()]
}

/// Returns true if the file at `path` defines the function or type.
fn defines(sources: &Sources, path: &str, function: &str) -> bool {
    let name = function.rsplit("::").next().unwrap_or_default();
    let text = sources.text(path).unwrap_or_default();
    [format!("fn {name}("), format!("fn {name}<"), format!("struct {name} "), format!("enum {name} ")]
        .iter()
        .any(|definition| text.contains(definition))
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
