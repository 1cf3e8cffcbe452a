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
                exception.is_none() && self.licenses.contains(license)
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let text = "[licenses]\nallow = [\"MIT\", \"ISC\"]\n[bans]\nskip = [{ crate = \"a@1\", reason = \"b\" }]\n\
                    [sources]\nallow-registry = [\"https://example.org/index\"]\n";
        Rules::read(text).unwrap()
    }

    fn package(name: &str, version: &str, license: Option<&str>, source: Option<&str>) -> Package {
        let text = |text: &str| text.to_owned();
        Package { name: text(name), version: text(version), license: license.map(text), source: source.map(text) }
    }

    const REGISTRY: Option<&str> = Some("registry+https://example.org/index");

    fn second_version() -> [Package; 2] {
        [package("a", "1.2.3", Some("MIT"), REGISTRY), package("a", "2.0.0", Some("MIT"), REGISTRY)]
    }

    #[test]
    fn an_expression_is_allowed_if_it_can_be_fulfilled() {
        for allowed in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "MIT AND ISC", "(GPL-3.0 OR MIT) AND ISC", "A WITH x OR MIT"] {
            assert!(rules().allows(allowed), "{allowed}");
        }
        for refused in ["GPL-3.0", "MIT AND GPL-3.0", "MIT WITH x", "(MIT", "MIT ISC", "", "(MIT OR ISC) AND GPL-3.0", "OR"] {
            assert!(!rules().allows(refused), "{refused}");
        }
    }

    #[test]
    fn what_is_on_the_lists_is_no_problem() {
        let [old, new] = second_version();
        let ours = package("ours", "0.1.0", None, None);
        assert_eq!(rules().problems(&[old, new, ours]), [""; 0]);
    }

    #[test]
    fn other_licenses_sources_and_versions_are_problems() {
        for (package, problem) in [
            (package("b", "1.0.0", Some("GPL-3.0"), REGISTRY), "has the license GPL-3.0"),
            (package("b", "1.0.0", None, REGISTRY), "names no license"),
            (package("b", "1.0.0", Some("MIT"), Some("git+https://example.org/index")), "comes from git+"),
            (package("b", "1.0.0", Some("MIT"), Some("registry+https://example.com")), "comes from registry+"),
            (package("a", "3.0.0", Some("MIT"), REGISTRY), "has the versions"),
        ] {
            let [old, new] = second_version();
            let problems = rules().problems(&[old, new, package]);
            assert!(problems.len() == 1 && problems[0].contains(problem), "{problems:?}");
        }
        let [_, new] = second_version();
        assert!(rules().problems(&[new])[0].contains("no longer a second version"));
    }

    #[test]
    fn a_second_version_needs_a_reason() {
        let without = "[licenses]\nallow = []\n[bans]\nskip = [{ crate = \"a@1\" }]\n[sources]\nallow-registry = []\n";
        assert!(Rules::read(without).unwrap_err().to_string().contains("a `reason`"));
    }
}
