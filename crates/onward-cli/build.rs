//! Sets `ONWARD_BUILT_FROM` to the current commit for release builds. Other builds leave it empty, so that a commit does not
//! trigger a rebuild. It is also empty outside of a git repository.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = release.then(|| git(&["rev-parse", "--short=12", "HEAD"])).flatten();
    if let Some(moves) = commit.as_ref().and_then(|_| git(&["rev-parse", "--git-path", "logs/HEAD"])) {
        println!("cargo::rerun-if-changed={moves}");
    }
    let from = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo::rustc-env=ONWARD_BUILT_FROM={from}");
}
