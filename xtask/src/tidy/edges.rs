//! Allowed dependencies between crates. The layers are the architecture, so an edge is a decision.

use super::Sources;

/// Test helpers: every crate may have it as a dev-dependency.
const TESTKIT: &str = "onward-testkit";

/// The edges of a crate.
struct Edges {
    name: &'static str,
    /// Dependencies of the product.
    dependencies: &'static [&'static str],
    /// Further dependencies of its tests, beside these and the test kit.
    dev: &'static [&'static str],
}

const fn edges(name: &'static str, dependencies: &'static [&'static str], dev: &'static [&'static str]) -> Edges {
    Edges { name, dependencies, dev }
}

/// A new line or word here needs an ADR.
const EDGES: &[Edges] = &[
    edges("onward-allocator", &[], &[]),
    edges("onward-core", &[], &[]),
    edges("onward-store", &["onward-core"], &[]),
    edges("onward-store-embedded", &["onward-core", "onward-store"], &[]),
    // Its tests compare it with the embedded store, and run engines over several databases.
    edges("onward-store-postgres", &["onward-core", "onward-store"], &["onward-store-embedded", "onward-runtime", "onward"]),
    edges("onward-runtime", &["onward-core", "onward-flow", "onward-store"], &[]),
    edges("onward-wire", &["onward-core"], &[]),
    edges("onward-flow", &[], &[]),
    edges("onward-llm", &[], &["onward-llm-scripted"]),
    edges("onward-llm-scripted", &[], &[]),
    edges("onward-mcp", &["onward-llm"], &[]),
    // Its tests run over servers, and over several of them on a database.
    edges(
        "onward",
        &[
            "onward-core",
            "onward-store",
            "onward-store-embedded",
            "onward-runtime",
            "onward-wire",
            "onward-flow",
            "onward-llm",
            "onward-mcp",
        ],
        &["onward-store-postgres", "onward-server", "onward-llm-scripted"],
    ),
    // Its tests have a worker of `onward` beside it.
    edges(
        "onward-server",
        &["onward-core", "onward-flow", "onward-store", "onward-store-embedded", "onward-runtime", "onward-wire"],
        &["onward"],
    ),
    edges(
        "onward-cli",
        &[
            "onward-allocator",
            "onward-core",
            "onward-flow",
            "onward-store",
            "onward-store-embedded",
            "onward-store-postgres",
            "onward-runtime",
            "onward-server",
            "onward",
            "onward-llm-scripted",
        ],
        &[],
    ),
    edges(TESTKIT, &[], &[]),
    edges(
        "onward-bench",
        &[
            "onward-allocator",
            "onward-core",
            "onward-store",
            "onward-store-embedded",
            "onward-store-postgres",
            TESTKIT,
            "onward-runtime",
            "onward",
            "onward-llm",
            "onward-llm-scripted",
        ],
        &[],
    ),
    // It opens every store that a package of another language can name.
    edges("onward-bridge", &["onward-core", "onward-store", "onward-store-postgres", "onward"], &[]),
    edges("onward-node", &["onward-bridge"], &[]),
    edges("onward-python", &["onward-bridge"], &[]),
    edges("examples", &["onward", "onward-llm", "onward-llm-scripted", "onward-mcp", "onward-server"], &[]),
    edges("xtask", &[], &[]),
];

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    let manifests = sources.texts(|path| path.ends_with("/Cargo.toml"));
    for (path, manifest) in manifests {
        let Some(name) = package_name(manifest) else {
            problems.push(format!("{path} has no package name"));
            continue;
        };
        let folder = path.trim_end_matches("/Cargo.toml").rsplit('/').next().unwrap_or_default();
        // `onward-python` is in `sdks/python`, where Python expects its package.
        let is_sdk = path.starts_with("sdks/") && name.strip_prefix("onward-") == Some(folder);
        if folder != name && !is_sdk {
            problems.push(format!("{path}: the crate `{name}` is in a folder of another name"));
        }
        let Some(edges) = EDGES.iter().find(|edges| edges.name == name) else {
            problems.push(format!("{path}: the crate `{name}` is new: that needs an ADR and a line in xtask/src/tidy/edges.rs"));
            continue;
        };
        problems.extend(
            forbidden(edges, manifest)
                .into_iter()
                .map(|edge| format!("{path}: the edge {edge} needs an ADR and a word in xtask/src/tidy/edges.rs")),
        );
    }
}

/// Returns the edges of a manifest that are not in the table.
fn forbidden(edges: &Edges, manifest: &str) -> Vec<String> {
    let is_allowed = |dependency: &str, is_dev: bool| {
        // A crate may name itself to run its tests with its features.
        let in_tests = dependency == edges.name || dependency == TESTKIT || edges.dev.contains(&dependency);
        edges.dependencies.contains(&dependency) || (is_dev && in_tests)
    };
    let found = own_dependencies(manifest).into_iter().filter(|(dependency, is_dev)| !is_allowed(dependency, *is_dev));
    found.map(|(dependency, is_dev)| format!("{} -> {dependency}{}", edges.name, if is_dev { " (dev)" } else { "" })).collect()
}

fn package_name(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find(|line| line.starts_with("name = "))?;
    line.split('"').nth(1)
}

/// Returns the crates of this workspace that a manifest names, for any target, and whether only tests use them.
fn own_dependencies(manifest: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        let name = if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            section.rsplit_once("dependencies.").map(|(_, name)| name)
        } else if section.ends_with("dependencies") {
            line.split(['=', '.', ' ']).next()
        } else {
            None
        };
        found.extend(name.filter(|name| is_own(name)).map(|name| (name, section.contains("dev-dependencies"))));
    }
    found
}

fn is_own(name: &str) -> bool {
    EDGES.iter().any(|edges| edges.name == name) || name.starts_with("onward-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_dependency_is_an_edge() {
        let manifest = "[package]\nname = \"x\"\n\n[dependencies]\nonward-core.workspace = true\nserde = \"1\"\n\n\
                        [target.'cfg(unix)'.dependencies]\nonward = { path = \"y\" }\n\n[dev-dependencies.onward-store]\npath = \"z\"\n";
        assert_eq!(package_name(manifest), Some("x"));
        assert_eq!(own_dependencies(manifest), [("onward-core", false), ("onward", false), ("onward-store", true)]);
    }

    #[test]
    fn what_only_tests_may_use_is_refused_in_the_product() {
        let onward = EDGES.iter().find(|edges| edges.name == "onward").unwrap();
        let of = |section: &str, name: &str| forbidden(onward, &format!("[{section}]\n{name}.workspace = true\n"));
        assert_eq!(of("dependencies", "onward-server"), ["onward -> onward-server"]);
        assert_eq!(of("dependencies", TESTKIT), ["onward -> onward-testkit"]);
        assert_eq!(of("dev-dependencies", "onward-cli"), ["onward -> onward-cli (dev)"]);
        for (section, name) in
            [("dev-dependencies", "onward-server"), ("dev-dependencies", TESTKIT), ("dependencies", "onward-core")]
        {
            assert_eq!(of(section, name), Vec::<String>::new(), "{section} {name}");
        }
    }
}
