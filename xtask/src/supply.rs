//! `cargo xtask supply`: third-party crates against `deny.toml`, from what Cargo has on this machine.
//!
//! Checks what needs no network: licenses, sources, two versions of one crate. Advisories need one: `cargo deny check`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::repository::{Repository, cargo};

/// The released platform, which `deny.toml` names.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

pub fn check(repository: &Repository) -> Result<()> {
    let rules = Rules::read(&std::fs::read_to_string(repository.root.join("deny.toml")).context("cannot read deny.toml")?)?;
    let packages = packages(&metadata(repository)?)?;
    let problems = rules.problems(&packages);
    for problem in &problems {
        println!("supply: {problem}");
    }
    if !problems.is_empty() {
        bail!("{} problems with third-party crates; see deny.toml", problems.len());
    }
    let others = packages.iter().filter(|package| package.source.is_some()).count();
    println!("supply: {others} third-party crates have allowed licenses and sources; advisories: `cargo deny check`");
    Ok(())
}

/// Returns the metadata of the workspace and all its dependencies.
pub fn metadata(repository: &Repository) -> Result<Value> {
    let mut command = cargo(repository);
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET]);
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot start cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")
}

/// A crate, ours or third-party.
#[derive(Debug, Clone)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub license: Option<String>,
    /// None for crates of the workspace.
    pub source: Option<String>,
}

pub fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let package = |package: &Value| {
        Some(Package {
            name: text(&package["name"])?,
            version: text(&package["version"])?,
            license: text(&package["license"]),
            source: text(&package["source"]),
        })
    };
    packages.iter().map(package).collect::<Option<_>>().context("a package has no name or version")
}

/// The rules of `deny.toml` that can be checked here.
#[derive(Debug)]
struct Rules {
    licenses: BTreeSet<String>,
    sources: BTreeSet<String>,
    /// Name and version of crates that are allowed beside another version.
    skipped: Vec<(String, String)>,
}

impl Rules {
    fn read(text: &str) -> Result<Rules> {
        let file: toml::Value = toml::from_str(text).context("deny.toml is not TOML")?;
        let list = |section: &str, key: &str| -> Result<Vec<toml::Value>> {
            let list = file.get(section).and_then(|section| section.get(key)).and_then(toml::Value::as_array);
            list.cloned().with_context(|| format!("deny.toml has no list `{key}` in [{section}]"))
        };
        let texts =
            |list: Vec<toml::Value>| list.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect::<BTreeSet<_>>();
        let skipped = |entry: &toml::Value| {
            entry.get("reason").and_then(toml::Value::as_str).filter(|reason| !reason.is_empty())?;
            let (name, version) = entry.get("crate")?.as_str()?.split_once('@')?;
            Some((name.to_owned(), version.to_owned()))
        };
        let skipped = list("bans", "skip")?.iter().map(skipped).collect::<Option<_>>();
        Ok(Rules {
            licenses: texts(list("licenses", "allow")?),
            sources: texts(list("sources", "allow-registry")?),
            skipped: skipped.context("an entry of `skip` has a `crate = \"name@version\"` and a `reason`")?,
        })
    }

    fn problems(&self, packages: &[Package]) -> Vec<String> {
        let mut problems = Vec::new();
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for Package { name, version, license, source } in packages {
            versions.entry(name).or_default().push(version);
            let Some(source) = source else { continue };
            let known = source.strip_prefix("registry+").is_some_and(|registry| self.sources.contains(registry));
            if !known {
                problems.push(format!("{name} {version} comes from {source}"));
            }
            match license {
                None => problems.push(format!("{name} {version} names no license")),
                Some(license) if !self.allows(license) => problems.push(format!("{name} {version} has the license {license}")),
                Some(_) => {}
            }
        }
        let is_skipped = |name: &str, version: &str| {
            let matches = |(skipped, start): &&(String, String)| {
                skipped == name
                    && version.strip_prefix(start.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            self.skipped.iter().find(matches).is_some()
        };
        for (name, versions) in &versions {
            let left: Vec<_> = versions.iter().filter(|version| !is_skipped(name, version)).collect();
            if left.len() > 1 {
                problems.push(format!("{name} has the versions {left:?}; update one, or `skip` it in deny.toml"));
            }
        }
        for (name, version) in &self.skipped {
            let there = versions.get(name.as_str()).map_or(0, Vec::len);
            if there < 2 {
                problems.push(format!("`skip` in deny.toml names {name}@{version}, which is no longer a second version"));
            }
        }
        problems
    }

    /// Returns whether an SPDX expression can be fulfilled with the licenses of the list.
    fn allows(&self, expression: &str) -> bool {
        // Old manifests use a slash for `OR`.
        let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let mut words: Vec<&str> = text.split_whitespace().rev().collect();
        let allowed = self.any_of(&mut words);
        allowed && words.is_empty()
    }

    fn any_of(&self, words: &mut Vec<&str>) -> bool {
        let mut allowed = self.all_of(words);
        while words.pop_if(|word| *word == "OR").is_some() {
            allowed |= self.all_of(words);
        }
        allowed
    }

    fn all_of(&self, words: &mut Vec<&str>) -> bool {
        let mut allowed = self.one(words);
        while words.pop_if(|word| *word == "AND").is_some() {
            allowed &= self.one(words);
        }
        allowed
    }

    fn one(&self, words: &mut Vec<&str>) -> bool {
        match words.pop() {
            Some("(") => {
                let allowed = self.any_of(words);
                words.pop() == Some(")") && allowed
            }
            Some(license) => {
                // An exception grants more rights than the license without it, but counts as a license of its own here.
                let exception = words.pop_if(|word| *word == "WITH").and_then(|_| words.pop());
                match exception {
                    Some(exception) => self.licenses.contains(&format!("{license} WITH {exception}")),
                    None => self.licenses.contains(license),
                }
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
