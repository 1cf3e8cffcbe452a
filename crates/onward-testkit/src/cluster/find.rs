//! Location of the PostgreSQL programs.

use std::path::{Path, PathBuf};

/// Error text if they are missing.
pub const NEEDED: &str = "PostgreSQL is needed for these tests (initdb, postgres and psql): install it with `apt-get install postgresql` \
     or your system's package of that name, or set PG_BIN to the folder that has them";

/// Returns the folder with `initdb`, `postgres` and `psql`: `PG_BIN`, then the path, then Debian's folders, newest version first.
pub fn find_programs() -> Option<PathBuf> {
    let named = std::env::var_os("PG_BIN").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    named.into_iter().chain(std::env::split_paths(&path)).chain(debian()).find(|folder| has_all(folder))
}

fn has_all(folder: &Path) -> bool {
    ["initdb", "postgres", "psql"].iter().all(|program| folder.join(program).is_file())
}

fn debian() -> Vec<PathBuf> {
    let Ok(folders) = std::fs::read_dir("/usr/lib/postgresql") else { return Vec::new() };
    let version = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<f32>().ok());
    let mut found: Vec<(f32, PathBuf)> =
        folders.flatten().filter_map(|entry| Some((version(&entry.path())?, entry.path().join("bin")))).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, folder)| folder).collect()
}
