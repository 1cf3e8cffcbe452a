//! The console: its types and bundle are those of the sources, and its tests pass in a browser against the server that was just
//! built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repository::{Repository, cargo, run};
use crate::sdks::{binary, install, npm};
use crate::setup;

/// Folder of the sources, and of the files that are part of the server.
const SOURCES: &str = "console";
const OUTPUT: &str = "crates/onward-server/console";

/// File that is generated from docs/openapi.json.
const TYPES: &str = "console/src/api/types.ts";

pub fn test(repository: &Repository) -> Result<()> {
    let browser = setup::browser()?;
    let binary = binary(repository)?;
    let folder = repository.root.join(SOURCES);
    install(&folder)?;
    let committed = [read(&repository.root.join(OUTPUT))?, read(&repository.root.join(TYPES))?].concat();
    for script in ["types", "check", "build"] {
        run(npm(&folder).args(["run", "--silent", script]))?;
    }
    let built = [read(&repository.root.join(OUTPUT))?, read(&repository.root.join(TYPES))?].concat();
    if let Some(file) = changed(&committed, &built) {
        bail!("{} is not what `npm run types` and `npm run build` make of the sources: commit it", file.display());
    }
    let examples = repository.target().join("debug/examples");
    run(npm(&folder)
        .args(["run", "--silent", "test"])
        .env("ONWARD_BIN", &binary)
        .env("ONWARD_EXAMPLES", &examples)
        .env("CHROMIUM", browser))
}

/// Measures the size of the console and how soon its first page is usable, with a server that is optimized for speed.
pub fn bench(repository: &Repository, arguments: &[&str]) -> Result<()> {
    let browser = setup::browser()?;
    let folder = repository.root.join(SOURCES);
    install(&folder)?;
    run(cargo(repository).args(["build", "--profile", "production", "--package", "onward-cli"]))?;
    let binary = repository.target().join("production/onward");
    let mut node = Command::new("node");
    node.current_dir(&folder).arg("bench.mjs").args(arguments);
    run(node.env("ONWARD_BIN", binary).env("CHROMIUM", browser))
}

type Contents = Vec<(PathBuf, Vec<u8>)>;

/// Reads a file, or the files of a folder in the order of their names.
fn read(path: &Path) -> Result<Contents> {
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        paths = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        paths.sort();
    }
    let bytes = |path: PathBuf| {
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok((path, bytes))
    };
    paths.into_iter().map(bytes).collect()
}

/// Returns the first file that differs, is new or is gone.
fn changed<'a>(before: &'a Contents, after: &'a Contents) -> Option<&'a Path> {
    let differs =
        |one: &'a Contents, other: &Contents| one.iter().find(|file| !other.contains(file)).map(|(path, _)| path.as_path());
    differs(before, after).or_else(|| differs(after, before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_a_new_and_a_missing_file_are_found() {
        let file = |name: &str, bytes: &[u8]| (PathBuf::from(name), bytes.to_vec());
        let committed = vec![file("a", b"1"), file("b", b"2")];
        assert_eq!(changed(&committed, &committed.clone()), None);
        assert_eq!(changed(&committed, &vec![file("a", b"1"), file("b", b"3")]), Some(Path::new("b")));
        assert_eq!(changed(&committed, &vec![file("a", b"1")]), Some(Path::new("b")));
        assert_eq!(changed(&vec![file("a", b"1")], &committed), Some(Path::new("b")));
    }
}
