//! Who may depend on whom. The layers are the architecture, so an edge is a decision.

use super::Sources;

/// The helper of tests that feed decoders with mutated bytes: every crate with a decoder has it as a dev-dependency (ADR 0028).
const FUZZ: &str = "onward-fuzz";

/// A new line or word here needs an ADR.
const EDGES: &[(&str, &[&str])] = &[
    ("onward-core", &[]),
    ("onward-store", &["onward-core"]),
    ("onward-store-embedded", &["onward-core", "onward-store"]),
    // Its tests run engines over several databases.
    ("onward-store-spread", &["onward-core", "onward-store", "onward-store-embedded", "onward-runtime", "onward"]),
    // Its tests are compared with the embedded store, on a cluster of their own.
    ("onward-store-postgres", &["onward-core", "onward-store", "onward-store-embedded", "onward-pg-cluster"]),
    ("onward-pg-cluster", &[]),
    (FUZZ, &[]),
    ("onward-runtime", &["onward-core", "onward-store"]),
    ("onward-wire", &["onward-core"]),
    // Its tests have a worker of `onward` beside it.
    ("onward-server", &["onward-core", "onward-store", "onward-store-embedded", "onward-runtime", "onward-wire", "onward"]),
    // Its tests run over a server too, and over several on a database.
    (
        "onward",
        &[
            "onward-core",
            "onward-store",
            "onward-store-embedded",
            "onward-store-postgres",
            "onward-store-spread",
            "onward-pg-cluster",
            "onward-runtime",
            "onward-wire",
            "onward-server",
            "onward-llm",
            "onward-llm-scripted",
            "onward-mcp",
        ],
    ),
    // Its tests start servers on databases of their own, and kill them.
    (
        "onward-cli",
        &[
            "onward-core",
            "onward-store",
            "onward-store-embedded",
            "onward-store-postgres",
            "onward-store-spread",
            "onward-pg-cluster",
            "onward-runtime",
            "onward-server",
            "onward",
            "onward-llm-scripted",
        ],
    ),
    (
        "onward-bench",
        &[
            "onward-core",
            "onward-store",
            "onward-store-embedded",
            "onward-store-postgres",
            "onward-store-spread",
            "onward-pg-cluster",
            "onward-runtime",
            "onward",
            "onward-llm",
            "onward-llm-scripted",
        ],
    ),
    // Its tests call the scripted model.
    ("onward-llm", &["onward-llm-scripted"]),
    ("onward-llm-scripted", &[]),
    ("onward-mcp", &["onward-llm"]),
    // Theirs is the model that answers by script.
    ("examples", &["onward", "onward-llm", "onward-llm-scripted", "onward-mcp", "onward-server"]),
    ("xtask", &[]),
];

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    let manifests = sources.texts(|path| path.ends_with("/Cargo.toml"));
    for (path, manifest) in manifests {
        let Some(name) = package_name(manifest) else {
            problems.push(format!("{path} has no package name"));
            continue;
        };
        let folder = path.trim_end_matches("/Cargo.toml").rsplit('/').next().unwrap_or_default();
        if folder != name {
            problems.push(format!("{path}: the crate `{name}` lies in a folder of another name"));
        }
        let Some((_, allowed)) = EDGES.iter().find(|(other, _)| *other == name) else {
            problems.push(format!("{path}: the crate `{name}` is new: that needs an ADR and a line in xtask/src/tidy/edges.rs"));
            continue;
        };
        for dependency in own_dependencies(manifest) {
            // A crate may name itself to run its tests with its features.
            if dependency != name && dependency != FUZZ && !allowed.contains(&dependency) {
                let edge = format!("{name} -> {dependency}");
                problems.push(format!("{path}: the edge {edge} needs an ADR and a word in xtask/src/tidy/edges.rs"));
            }
        }
    }
}

fn package_name(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find(|line| line.starts_with("name = "))?;
    line.split('"').nth(1)
}

/// The crates of this workspace that a manifest names, for any target and any purpose.
fn own_dependencies(manifest: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            let nested = section.rsplit_once("dependencies.").map(|(_, name)| name);
            found.extend(nested.filter(|name| is_own(name)));
        } else if section.ends_with("dependencies") {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            found.extend(is_own(name).then_some(name));
        }
    }
    found
}

fn is_own(name: &str) -> bool {
    EDGES.iter().any(|(own, _)| *own == name) || name.starts_with("onward-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_dependency_is_an_edge() {
        let manifest = "[package]\nname = \"x\"\n\n[dependencies]\nonward-core.workspace = true\nserde = \"1\"\n\n\
                        [target.'cfg(unix)'.dependencies]\nonward = { path = \"y\" }\n\n[dev-dependencies.onward-store]\npath = \"z\"\n";
        assert_eq!(package_name(manifest), Some("x"));
        assert_eq!(own_dependencies(manifest), ["onward-core", "onward", "onward-store"]);
    }
}
