//! The rules of this repository that no compiler knows. Each check adds one line per problem.

mod citations;
mod edges;
mod error_pages;
mod files;
mod invariants;
mod proofs;
mod unsafe_code;
mod words;

use anyhow::{Result, bail};

use crate::repository::Repository;

/// What all checks look at: every file of the repository that is text.
pub struct Sources {
    files: Vec<(String, String)>,
}

impl Sources {
    fn load(repository: &Repository) -> Result<Sources> {
        let mut files = Vec::new();
        for path in repository.files()? {
            // What is not UTF-8 is no text of ours.
            if let Ok(text) = std::fs::read_to_string(repository.root.join(&path)) {
                files.push((path, text));
            }
        }
        Ok(Sources { files })
    }

    /// Path and text of every file whose path `chosen` likes.
    fn texts(&self, chosen: impl Fn(&str) -> bool) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str())).filter(move |(path, _)| chosen(path))
    }

    /// The code that is compiled into our crates, tests apart.
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
    error_pages::check(&sources, &mut problems);
    files::check(&sources, &mut problems);
    words::check(&sources, &mut problems);
    citations::check(&sources, &mut problems);
    invariants::check(&sources, &mut problems);
    proofs::check(&sources, &mut problems);
    unsafe_code::check(&sources, &mut problems);
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

/// Brings generated files up to date.
pub fn write(repository: &Repository) -> Result<()> {
    let sources = Sources::load(repository)?;
    std::fs::write(repository.root.join(invariants::PAGE), invariants::page(&sources))?;
    Ok(())
}
