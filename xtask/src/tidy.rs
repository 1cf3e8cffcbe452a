//! Rules of this repository that no compiler checks. Each check adds one line per problem.

mod citations;
mod code_map;
mod edges;
mod error_codes;
mod files;
mod invariants;
mod proofs;
mod prose;
mod protocol;
mod unsafe_code;
mod words;

#[cfg(test)]
mod tests;

use anyhow::{Result, bail};

use crate::repository::Repository;

/// Every text file of the repository.
pub struct Sources {
    files: Vec<(String, String)>,
}

impl Sources {
    fn load(repository: &Repository) -> Result<Sources> {
        let mut files = Vec::new();
        for path in repository.files()? {
            // Files that are not UTF-8 are not text.
            if let Ok(text) = std::fs::read_to_string(repository.root.join(&path)) {
                files.push((path, text));
            }
        }
        Ok(Sources { files })
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Sources {
        Sources { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }

    /// Returns path and text of every file whose path `chosen` accepts.
    fn texts(&self, chosen: impl Fn(&str) -> bool) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str())).filter(move |(path, _)| chosen(path))
    }

    /// Returns the sources of our crates, without tests.
    fn crate_sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts(|path| path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs"))
    }

    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts(|path| path.ends_with(".rs"))
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|(other, _)| other == path).map(|(_, text)| text.as_str())
    }
}

pub fn check(repository: &Repository) -> Result<()> {
    let sources = Sources::load(repository)?;
    let mut problems = Vec::new();
    edges::check(&sources, &mut problems);
    error_codes::check(&sources, &mut problems);
    files::check(&sources, &mut problems);
    words::check(&sources, &mut problems);
    citations::check(&sources, &mut problems);
    invariants::check(&sources, &mut problems);
    proofs::check(&sources, &mut problems);
    unsafe_code::check(&sources, &mut problems);
    code_map::check(&sources, &mut problems);
    prose::check(&sources, &mut problems);
    protocol::check(&sources, &mut problems);
    for problem in &problems {
        println!("tidy: {problem}");
    }
    match problems.len() {
        0 => {
            println!("tidy: {} files are in order", sources.files.len());
            Ok(())
        }
        1 => bail!("1 problem"),
        count => bail!("{count} problems"),
    }
}

/// Updates generated files.
pub fn write(repository: &Repository) -> Result<()> {
    let sources = Sources::load(repository)?;
    let write = |path: &str, text: String| std::fs::write(repository.root.join(path), text);
    write(invariants::PAGE, invariants::page(&sources))?;
    write(protocol::PAGE, protocol::page(&sources)?)?;
    write(prose::BASELINE, prose::lowered(&sources))?;
    Ok(())
}
