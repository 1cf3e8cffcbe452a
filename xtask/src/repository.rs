//! Location and files of the repository, and starting of programs in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

pub struct Repository {
    pub root: PathBuf,
    /// Clippy, if it lints our crates during builds; see [`Repository::with_lints`].
    clippy: Option<PathBuf>,
}

impl Repository {
    pub fn find() -> Result<Repository> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the repository")?;
        Ok(Repository { root: root.to_owned(), clippy: None })
    }

    /// Returns the repository with Clippy as the compiler of our own crates: it lints and builds in one pass. A warning fails the
    /// build. This is how `cargo clippy` calls it, except for a build instead of a check.
    pub fn with_lints(&self) -> Result<Repository> {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let output = rustc.args(["--print", "sysroot"]).output().context("cannot start rustc")?;
        let sysroot = String::from_utf8(output.stdout).context("the sysroot is not UTF-8")?;
        let clippy = Path::new(sysroot.trim()).join("bin").join(format!("clippy-driver{}", std::env::consts::EXE_SUFFIX));
        if !clippy.is_file() {
            bail!("there is no {}: rustup component add clippy", clippy.display());
        }
        Ok(Repository { root: self.root.clone(), clippy: Some(clippy) })
    }

    /// Returns the target folder of Cargo.
    pub fn target(&self) -> PathBuf {
        self.root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
    }

    /// Returns every file that is committed or about to be, by its path from the root, sorted.
    pub fn files(&self) -> Result<Vec<String>> {
        let mut git = Command::new("git");
        git.current_dir(&self.root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = match git.output() {
            Ok(output) if output.status.success() => {
                let text = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
                text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect()
            }
            // An unpacked archive has no index: take all files.
            _ => self.walk()?,
        };
        let mut files: Vec<String> = listed.into_iter().filter(|path| self.root.join(path).is_file()).collect();
        files.sort();
        Ok(files)
    }

    fn walk(&self) -> Result<Vec<String>> {
        let mut files = Vec::new();
        let mut open = vec![self.root.clone()];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if matches!(name.as_str(), "target" | ".git" | "onward-data" | "node_modules") {
                    continue;
                }
                if path.is_dir() {
                    open.push(path);
                } else {
                    files.push(path.strip_prefix(&self.root)?.to_string_lossy().into_owned());
                }
            }
        }
        Ok(files)
    }
}

/// Returns the Cargo that started this program.
pub fn cargo(repository: &Repository) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(&repository.root);
    // `cargo run` sets these for this package. Build scripts that depend on them would run again in each build that alternates
    // between xtask and cargo.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    if let Some(clippy) = &repository.clippy {
        // Separator of Clippy's arguments, as in `cargo clippy`.
        command.env("RUSTC_WORKSPACE_WRAPPER", clippy).env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    }
    command
}

/// Runs a program in the foreground, with our standard output and error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", describe(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", describe(command));
    }
    Ok(())
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    let words: Vec<String> = std::iter::once(program).chain(arguments).collect();
    format!("`{}`", words.join(" "))
}
