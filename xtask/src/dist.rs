//! `cargo xtask dist`: the files of a release: the binary, the packages for Python and TypeScript, lists of their contents, and
//! checksums of all.
//!
//! A list is a CycloneDX document: every crate that is linked into the binary or runs during its build, with version, license and
//! the checksum of Cargo.lock. Binaries are refused if they contain anything for tests; packages are installed and tried.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::packages::{self, BillOfMaterials, Natives};
use crate::repository::Repository;
use crate::supply;

const BINARY: &str = "onward";
const PROFILE: &str = "production";

/// Strings that no release may contain: ways to kill or change a process that are meant for tests.
const FOR_TESTS: &[&str] = &["ONWARD_FAILPOINT"];

pub fn build(repository: &Repository, folder: &Path) -> Result<()> {
    supply::check(repository)?;
    let natives = Natives::build(repository, PROFILE)?;
    for file in natives.files() {
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        refuse_what_is_for_tests(&bytes).with_context(|| file.display().to_string())?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = &folder.canonicalize()?;
    std::fs::copy(&natives.binary, folder.join(BINARY)).context("cannot copy the binary")?;
    let bills = bills_of_materials(repository)?;
    for (name, text) in &bills {
        std::fs::write(folder.join(name), text).context("cannot write a list of crates")?;
    }
    let made = packages::make(repository, &natives, &bills, folder)?;
    packages::check(repository, &made)?;
    let names = made.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let names: Vec<String> =
        [BINARY.to_owned()].into_iter().chain(bills.into_iter().map(|(name, _)| name)).chain(names).collect();
    let sums = Command::new("sha256sum").current_dir(folder).args(&names).output().context("cannot start sha256sum")?;
    if !sums.status.success() {
        bail!("sha256sum ended with {}", sums.status);
    }
    std::fs::write(folder.join("SHA256SUMS"), sums.stdout).context("cannot write the checksums")?;
    println!("dist: {} and SHA256SUMS are in {}", names.join(", "), folder.display());
    Ok(())
}

/// Returns the list of each crate that is built for a release.
fn bills_of_materials(repository: &Repository) -> Result<Vec<BillOfMaterials>> {
    let lock = std::fs::read_to_string(repository.root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let (metadata, checksums) = (supply::metadata(repository)?, checksums(&lock)?);
    let list = |package: &&str| {
        let name = if *package == packages::CRATES[0] { BINARY } else { package };
        Ok((format!("{name}.cdx.json"), format!("{:#}\n", bill_of_materials(package, &metadata, &checksums)?)))
    };
    packages::CRATES.iter().map(list).collect()
}

fn refuse_what_is_for_tests(binary: &[u8]) -> Result<()> {
    for word in FOR_TESTS {
        if binary.windows(word.len()).any(|window| window == word.as_bytes()) {
            bail!("the binary contains `{word}`, which is for tests only");
        }
    }
    Ok(())
}

/// Returns the checksums of Cargo.lock, by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Value = toml::from_str(lock).context("Cargo.lock is not TOML")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock has no packages")?;
    let text = |package: &toml::Value, key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let checksum =
        |package: &toml::Value| Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?));
    Ok(packages.iter().filter_map(checksum).collect())
}

/// Returns what is linked into the binary of a package or runs during its build, as a CycloneDX document.
fn bill_of_materials(package: &str, metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let by_id: BTreeMap<&str, &Value> = packages.iter().filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata has no graph")?;
    let needs: BTreeMap<&str, Vec<&str>> = nodes.iter().filter_map(|node| Some((node["id"].as_str()?, needed(node)))).collect();
    let root = packages.iter().find(|found| found["name"] == package).and_then(|found| found["id"].as_str());
    let root = root.with_context(|| format!("package {package} not found"))?;
    let mut reached = BTreeSet::from([root]);
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        let next = needs.get(id).into_iter().flatten().copied();
        open.extend(next.filter(|id| reached.insert(id)));
    }
    let component = |id: &&str| -> Option<Value> {
        let package = by_id.get(id)?;
        let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
        let mut component = json!({
            "type": if *id == root { "application" } else { "library" },
            "bom-ref": reference(package),
            "name": name,
            "version": version,
            "purl": reference(package),
        });
        if let Some(license) = package["license"].as_str() {
            component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        if let Some(checksum) = checksums.get(&(name.to_owned(), version.to_owned())) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        Some(component)
    };
    let others: Vec<Value> = reached.iter().filter(|id| **id != root).filter_map(component).collect();
    let edges = reached.iter().map(|id| {
        let on: BTreeSet<String> = needs.get(id).into_iter().flatten().map(|id| reference(by_id[id])).collect();
        json!({ "ref": reference(by_id[id]), "dependsOn": on })
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(&root) },
        "components": others,
        "dependencies": edges.collect::<Vec<_>>(),
    }))
}

/// Returns the packages that a node of the graph is linked with or built by, without dependencies of its tests.
fn needed(node: &Value) -> Vec<&str> {
    let is_needed = |dependency: &&Value| {
        let kinds = dependency["dep_kinds"].as_array();
        kinds.is_none_or(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"))
    };
    node["deps"].as_array().into_iter().flatten().filter(is_needed).filter_map(|dependency| dependency["pkg"].as_str()).collect()
}

fn reference(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGE: &str = packages::CRATES[0];

    #[test]
    fn a_binary_with_something_for_tests_in_it_is_refused() {
        assert!(refuse_what_is_for_tests(b"\x7fELF onward server").is_ok());
        for word in FOR_TESTS {
            let binary = [b"\x7fELF\0", word.as_bytes(), b"\0"].concat();
            assert!(refuse_what_is_for_tests(&binary).is_err(), "{word}");
        }
    }

    #[test]
    fn only_what_is_linked_or_builds_is_listed() {
        let package = |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0" });
        let on = |pkg: &str, kind: Value| json!({ "pkg": pkg, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [package(PACKAGE), package("linked"), package("builds"), package("tests"), package("deep"), package("other")],
            "resolve": { "nodes": [
                { "id": PACKAGE, "deps": [on("linked", Value::Null), on("builds", json!("build")), on("tests", json!("dev"))] },
                { "id": "linked", "deps": [on("deep", Value::Null)] },
                { "id": "deep", "deps": [] }, { "id": "builds", "deps": [] }, { "id": "tests", "deps": [] },
                { "id": "other", "deps": [] },
            ] },
        });
        let checksums = BTreeMap::from([(("deep".to_owned(), "1.0.0".to_owned()), "ab".to_owned())]);
        let list = bill_of_materials(PACKAGE, &metadata, &checksums).unwrap();
        let names: Vec<&str> = list["components"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["builds", "deep", "linked"]);
        assert_eq!(list["components"][1]["hashes"], json!([{ "alg": "SHA-256", "content": "ab" }]));
        assert_eq!(list["components"][1]["licenses"], json!([{ "expression": "MIT OR Apache-2.0" }]));
    }

    /// The list of this repository has the structure that the format requires.
    #[test]
    fn the_list_of_this_repository_is_a_cyclonedx_document() {
        let repository = Repository::find().unwrap();
        let lock = std::fs::read_to_string(repository.root.join("Cargo.lock")).unwrap();
        let list = bill_of_materials(PACKAGE, &supply::metadata(&repository).unwrap(), &checksums(&lock).unwrap()).unwrap();
        assert_eq!((&list["bomFormat"], &list["specVersion"], &list["version"]), (&json!("CycloneDX"), &json!("1.5"), &json!(1)));
        assert_eq!(list["metadata"]["component"]["name"], PACKAGE);
        assert_eq!(list["metadata"]["component"]["type"], "application");
        let components = list["components"].as_array().unwrap();
        let mut references = BTreeSet::from([list["metadata"]["component"]["bom-ref"].as_str().unwrap()]);
        for component in components {
            let text = |key: &str| component[key].as_str().filter(|text| !text.is_empty());
            let reference = text("bom-ref").unwrap();
            assert_eq!(Some(reference), text("purl"));
            assert_eq!(reference, format!("pkg:cargo/{}@{}", text("name").unwrap(), text("version").unwrap()));
            assert_eq!(text("type"), Some("library"));
            assert!(component["licenses"][0]["expression"].is_string(), "{reference}");
            let is_ours = reference.starts_with("pkg:cargo/onward");
            let checksum = component["hashes"][0]["content"].as_str();
            assert!(is_ours || checksum.is_some_and(|checksum| checksum.len() == 64), "{reference}: {checksum:?}");
            assert!(references.insert(reference), "{reference} is there twice");
        }
        for name in ["tokio", "rustls", "libsqlite3-sys", "onward-core"] {
            assert!(components.iter().any(|component| component["name"] == name), "{name}");
        }
        for name in ["tempfile", "rcgen", "onward-testkit", "xtask"] {
            assert!(!components.iter().any(|component| component["name"] == name), "{name} is in no binary");
        }
        let edges = list["dependencies"].as_array().unwrap();
        assert_eq!(edges.len(), references.len());
        for edge in edges {
            let ends = edge["dependsOn"].as_array().unwrap().iter().chain([&edge["ref"]]);
            assert!(ends.filter_map(Value::as_str).all(|end| references.contains(end)), "{edge}");
        }
    }
}
