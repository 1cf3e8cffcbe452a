//! The packages `onward` for Python and TypeScript as they are published: a wheel and an npm tarball, each with the native part and
//! the command `onward` for this platform, installed into empty environments and tried there.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::repository::{Repository, cargo, run};
use crate::sdks;

const PYTHON: &str = "sdks/python";
const TYPESCRIPT: &str = "sdks/typescript";

/// What cargo built for both packages.
pub struct Natives {
    /// The command `onward`.
    pub binary: PathBuf,
    /// The libraries of the crates `onward-python` and `onward-node`.
    python: PathBuf,
    node: PathBuf,
    /// Debug information makes the files ten times as large.
    has_debug_information: bool,
}

/// Crates that cargo builds for the packages.
pub const CRATES: [&str; 3] = ["onward-cli", "onward-python", "onward-node"];

impl Natives {
    /// Builds everything with a profile for releases.
    pub fn build(repository: &Repository, profile: &str) -> Result<Natives> {
        let crates = CRATES.iter().flat_map(|name| ["--package", name]);
        run(cargo(repository).args(["build", "--quiet", "--locked", "--profile", profile]).args(crates))?;
        Ok(Natives::at(&repository.target().join(profile), false))
    }

    /// Builds everything as the tests do.
    fn debug(repository: &Repository) -> Result<Natives> {
        let binary = sdks::binary(repository)?;
        // Names the whole workspace: a part of it would be built again with other features.
        run(cargo(repository).args(["build", "--quiet", "--workspace", "--examples", "--lib"]))?;
        Ok(Natives::at(binary.parent().context("the binary has a folder")?, true))
    }

    fn at(folder: &Path, has_debug_information: bool) -> Natives {
        let library = |name: &str| folder.join(format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX));
        let binary = folder.join("onward");
        Natives { binary, python: library("onward_python"), node: library("onward_node"), has_debug_information }
    }

    pub fn files(&self) -> [&Path; 3] {
        [&self.binary, &self.python, &self.node]
    }

    fn copy(&self, file: &Path, to: &Path) -> Result<()> {
        if self.has_debug_information {
            return run(Command::new("strip").arg("--strip-all").arg("-o").args([to, file]));
        }
        std::fs::copy(file, to).map(drop).with_context(|| format!("cannot copy {}", file.display()))
    }

    /// Puts the Python package into `folder/onward`, ready to be imported.
    pub fn stage_python(&self, repository: &Repository, folder: &Path) -> Result<()> {
        let prefix = format!("{PYTHON}/src/");
        for path in repository.files()?.iter().filter(|path| path.starts_with(&prefix) && !path.ends_with(".so")) {
            let to = folder.join(&path[prefix.len()..]);
            create_folder(to.parent().context("a file has a folder")?)?;
            std::fs::copy(repository.root.join(path), &to).with_context(|| format!("cannot copy {path}"))?;
        }
        self.copy(&self.python, &folder.join("onward/_native.abi3.so"))
    }

    /// Puts the npm package into `folder`, compiled.
    pub fn stage_typescript(&self, repository: &Repository, folder: &Path) -> Result<()> {
        let sources = repository.root.join(TYPESCRIPT);
        sdks::install(&sources)?;
        create_folder(folder)?;
        let mut tsc = Command::new(sources.join("node_modules/.bin/tsc"));
        run(tsc.current_dir(&sources).args(["-p", ".", "--outDir"]).arg(folder.join("dist")))?;
        self.copy(&self.node, &folder.join("onward.node"))?;
        let manifest = std::fs::read_to_string(sources.join("package.json")).context("cannot read package.json")?;
        let manifest = published_manifest(&serde_json::from_str(&manifest)?)?;
        write(&folder.join("package.json"), &format!("{manifest:#}\n"))
    }
}

/// Returns the manifest of the published npm package: without what only the repository needs, and for this platform only, since
/// the native part is inside. npm refuses to install it elsewhere.
fn published_manifest(manifest: &Value) -> Result<Value> {
    let mut manifest = manifest.as_object().context("package.json is an object")?.clone();
    manifest.remove("scripts");
    manifest.remove("devDependencies");
    let cpu = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    manifest.insert("os".to_owned(), json!(["linux"]));
    manifest.insert("cpu".to_owned(), json!([cpu]));
    manifest.insert("libc".to_owned(), json!(["glibc"]));
    let files = manifest.get_mut("files").and_then(Value::as_array_mut).context("package.json names its files")?;
    files.extend(LICENSES.iter().copied().chain(["*.cdx.json"]).map(Value::from));
    Ok(Value::Object(manifest))
}

const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// A list of the crates in a file: its name and text.
pub type BillOfMaterials = (String, String);

/// Makes the wheel and the tarball in a folder and returns their paths.
pub fn make(repository: &Repository, natives: &Natives, bills: &[BillOfMaterials], folder: &Path) -> Result<[PathBuf; 2]> {
    let work = repository.target().join("packages");
    drop(std::fs::remove_dir_all(&work)); // of an earlier run
    create_folder(folder)?;
    let wheel = make_wheel(repository, natives, bills, &work.join("python"), folder)?;
    let tarball = make_tarball(repository, natives, bills, &work.join("typescript"), folder)?;
    Ok([wheel, tarball])
}

fn make_wheel(repository: &Repository, natives: &Natives, bills: &[BillOfMaterials], work: &Path, out: &Path) -> Result<PathBuf> {
    let project = std::fs::read_to_string(repository.root.join(PYTHON).join("pyproject.toml"))?;
    let project: toml::Value = toml::from_str(&project).context("pyproject.toml is not TOML")?;
    let readme = std::fs::read_to_string(repository.root.join(PYTHON).join("README.md"))?;
    let version = version(repository)?;
    let tag = format!("cp310-abi3-{}", platform_tag(&[&natives.binary, &natives.python])?);
    natives.stage_python(repository, work)?;
    // Installers put scripts into the folder of commands: `onward dev` works, too, and `python -m onward` finds it there.
    let scripts = work.join(format!("onward-{version}.data/scripts"));
    create_folder(&scripts)?;
    natives.copy(&natives.binary, &scripts.join("onward"))?;
    let info = work.join(format!("onward-{version}.dist-info"));
    create_folder(&info.join("licenses"))?;
    create_folder(&info.join("sboms"))?;
    for license in LICENSES {
        std::fs::copy(repository.root.join(license), info.join("licenses").join(license)).context("cannot copy a license")?;
    }
    for (name, text) in bills {
        write(&info.join("sboms").join(name), text)?;
    }
    write(&info.join("METADATA"), &core_metadata(&project, &version, &readme)?)?;
    let wheel = format!("Wheel-Version: 1.0\nGenerator: onward xtask\nRoot-Is-Purelib: false\nTag: {tag}\n");
    write(&info.join("WHEEL"), &wheel)?;
    let path = out.join(format!("onward-{version}-{tag}.whl"));
    let level = if natives.has_debug_information { "1" } else { "9" };
    run(Command::new("python3")
        .arg("-B")
        .arg(repository.root.join(PYTHON).join("pack_wheel.py"))
        .arg(work)
        .arg(&path)
        .arg(level))?;
    Ok(path)
}

/// Returns the file METADATA of a wheel, from `pyproject.toml`.
fn core_metadata(project: &toml::Value, version: &str, readme: &str) -> Result<String> {
    let project = project.get("project").context("pyproject.toml has no project")?;
    let text = |key: &str| project.get(key).and_then(toml::Value::as_str).with_context(|| format!("the project has no {key}"));
    let mut lines = vec![
        "Metadata-Version: 2.4".to_owned(),
        format!("Name: {}", text("name")?),
        format!("Version: {version}"),
        format!("Summary: {}", text("description")?),
        format!("License-Expression: {}", text("license")?),
        format!("Requires-Python: {}", text("requires-python")?),
        "Description-Content-Type: text/markdown".to_owned(),
    ];
    lines.extend(LICENSES.iter().map(|license| format!("License-File: {license}")));
    let classifiers = project.get("classifiers").and_then(toml::Value::as_array).into_iter().flatten();
    lines.extend(classifiers.filter_map(toml::Value::as_str).map(|classifier| format!("Classifier: {classifier}")));
    Ok(format!("{}\n\n{readme}", lines.join("\n")))
}

/// Libraries that every Linux with glibc has, as the manylinux policies list them.
const SYSTEM_LIBRARIES: [&str; 8] =
    ["linux-vdso.so.1", "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1", "ld-linux"];

/// Returns the tag of the oldest platform on which the files load: that of the newest glibc whose symbols they use.
fn platform_tag(files: &[&Path]) -> Result<String> {
    let mut newest = 17; // glibc of the oldest manylinux platform
    for file in files {
        let output = Command::new("grep").args(["-aoE", r"GLIBC_2\.[0-9]+"]).arg(file).output().context("cannot start grep")?;
        newest = newest.max(newest_glibc(&String::from_utf8_lossy(&output.stdout)));
        let output = Command::new("ldd").arg(file).output().context("cannot start ldd")?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let name = line.split_whitespace().next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
            if !SYSTEM_LIBRARIES.iter().any(|known| name.starts_with(known)) {
                bail!("{} needs {name}, which not every Linux has", file.display());
            }
        }
    }
    Ok(format!("manylinux_2_{newest}_{}", std::env::consts::ARCH))
}

/// Returns the minor version of the newest glibc among versions of symbols, one in a line.
fn newest_glibc(versions: &str) -> u32 {
    versions.lines().filter_map(|line| line.strip_prefix("GLIBC_2.")?.parse().ok()).max().unwrap_or(0)
}

fn make_tarball(
    repository: &Repository,
    natives: &Natives,
    bills: &[BillOfMaterials],
    work: &Path,
    out: &Path,
) -> Result<PathBuf> {
    natives.stage_typescript(repository, work)?;
    natives.copy(&natives.binary, &work.join("onward"))?;
    for license in LICENSES {
        std::fs::copy(repository.root.join(license), work.join(license)).context("cannot copy a license")?;
    }
    std::fs::copy(repository.root.join(TYPESCRIPT).join("README.md"), work.join("README.md"))
        .context("cannot copy the README")?;
    for (name, text) in bills {
        write(&work.join(name), text)?;
    }
    run(sdks::npm(work).args(["pack", "--silent", "--pack-destination"]).arg(out).stdout(Stdio::null()))?;
    Ok(out.join(format!("onward-{}.tgz", version(repository)?)))
}

/// Returns the version of the workspace.
fn version(repository: &Repository) -> Result<String> {
    let manifest: toml::Value = toml::from_str(&std::fs::read_to_string(repository.root.join("Cargo.toml"))?)?;
    let version = manifest.get("workspace").and_then(|workspace| workspace.get("package")?.get("version")?.as_str());
    version.map(str::to_owned).context("the workspace has no version")
}

/// The test part: makes both packages of what the other tests use, and tries them.
pub fn test(repository: &Repository) -> Result<()> {
    let natives = Natives::debug(repository)?;
    let bills = [("onward.cdx.json".to_owned(), "{}\n".to_owned())];
    let packages = make(repository, &natives, &bills, &repository.target().join("packages/out"))?;
    check(repository, &packages)
}

/// Installs both packages into empty environments without Rust, and runs the quickstarts and the command there.
pub fn check(repository: &Repository, [wheel, tarball]: &[PathBuf; 2]) -> Result<()> {
    let folder = repository.target().join("packages/installed");
    drop(std::fs::remove_dir_all(&folder)); // of an earlier run
    let programs = folder.join("programs");
    create_folder(&programs)?;
    for name in ["node", "npm", "npx", "sh"] {
        std::os::unix::fs::symlink(find(name)?, programs.join(name)).with_context(|| format!("cannot link {name}"))?;
    }
    check_python(repository, wheel, &folder.join("python"))?;
    check_typescript(repository, tarball, &folder.join("typescript"), &programs)?;
    println!("packages: {} and {} install and run", file_name(wheel), file_name(tarball));
    Ok(())
}

/// What the quickstarts print.
const PRINTED: &str = "label: paid for a teapot 42 noted\n";

fn check_python(repository: &Repository, wheel: &Path, folder: &Path) -> Result<()> {
    run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let python = folder.join("bin/python");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"];
    run(Command::new(&python).args(pip).arg(wheel))?;
    let readme = std::fs::read_to_string(repository.root.join(PYTHON).join("README.md"))?;
    write(&folder.join("quickstart.py"), fenced(&readme, "python")?)?;
    let clean = |arguments: &[&str]| {
        let mut command = Command::new(&python);
        command.current_dir(folder).env_clear().env("HOME", folder).args(arguments);
        command
    };
    for _ in 0..2 {
        expect(&mut clean(&["quickstart.py"]), PRINTED)?;
    }
    expect(&mut clean(&["-c", "import onward; print(onward.__version__)"]), &format!("{}\n", version(repository)?))?;
    try_server(clean(&["-m", "onward"]))?;
    refuse_missing(clean(&["-m", "onward"]))
}

fn check_typescript(repository: &Repository, tarball: &Path, folder: &Path, programs: &Path) -> Result<()> {
    create_folder(folder)?;
    write(&folder.join("package.json"), "{\"private\": true, \"type\": \"module\"}\n")?;
    let clean = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(programs.join(program));
        command.current_dir(folder).env_clear().env("HOME", folder).env("PATH", programs).args(arguments);
        command
    };
    let npm = ["install", "--offline", "--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts", "--loglevel=error"];
    run(clean("npm", &npm).arg(tarball).stdout(Stdio::null()))?;
    let readme = std::fs::read_to_string(repository.root.join(TYPESCRIPT).join("README.md"))?;
    write(&folder.join("quickstart.ts"), fenced(&readme, "ts")?)?;
    let mut tsc = Command::new(repository.root.join(TYPESCRIPT).join("node_modules/.bin/tsc"));
    tsc.current_dir(folder).args(["--strict", "--module", "nodenext", "--target", "es2022", "--types", "node", "--typeRoots"]);
    tsc.arg(repository.root.join(TYPESCRIPT).join("node_modules/@types"));
    run(tsc.args(["--lib", "es2023,esnext.disposable", "quickstart.ts"]))?;
    for _ in 0..2 {
        expect(&mut clean("node", &["quickstart.js"]), PRINTED)?;
    }
    expect(&mut clean("npx", &["--no-install", "onward", "--version"]), &format!("onward {}\n", version(repository)?))?;
    try_server(clean("node", &["node_modules/.bin/onward"]))?;
    refuse_missing(clean("node", &["node_modules/.bin/onward"]))
}

/// Starts `onward dev` by this command, and ends it by SIGTERM.
fn try_server(mut onward: Command) -> Result<()> {
    onward.args(["--json", "dev", "--ephemeral", "--port", "0"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = onward.spawn().context("cannot start the command of the package")?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().context("it has an output")?).read_line(&mut line)?;
    let ended = run(Command::new("kill").args(["-TERM", &process.id().to_string()])).and_then(|()| Ok(process.wait()?))?;
    if !line.contains("\"url\"") {
        bail!("`onward dev` of the package printed {line:?} and ended with {ended}");
    }
    Ok(())
}

/// Checks the error of a command that names a program that is not there.
fn refuse_missing(mut onward: Command) -> Result<()> {
    let output = onward.env("ONWARD_BIN", "/nowhere/onward").arg("dev").output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(127) || !printed.starts_with("error: ") || !printed.contains("hint: ") {
        bail!("without a program, the command ended with {} and {printed:?}", output.status);
    }
    Ok(())
}

fn expect(command: &mut Command, expected: &str) -> Result<()> {
    let output = command.output().context("cannot start a program of the package")?;
    let (printed, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() || printed != expected {
        bail!("expected {expected:?}, and the program ended with {}: {printed}{error}", output.status);
    }
    Ok(())
}

/// Returns the first block of code in this language.
fn fenced<'a>(markdown: &'a str, language: &str) -> Result<&'a str> {
    let begin = markdown.split_once(&format!("```{language}\n")).map(|(_, rest)| rest);
    begin.and_then(|rest| rest.split("```").next()).with_context(|| format!("the README has no {language}"))
}

fn find(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file());
    found.with_context(|| format!("{program} is not on the path"))
}

fn create_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_version_decides_about_the_platform() {
        assert_eq!(newest_glibc("GLIBC_2.17\nGLIBC_2.9\nGLIBC_2.34\nGLIBC_2.2\n"), 34);
        assert_eq!(newest_glibc(""), 0);
    }

    #[test]
    fn a_published_manifest_names_its_platform_and_no_tools() {
        let manifest = json!({ "name": "onward", "files": ["dist"], "scripts": {}, "devDependencies": {} });
        let published = published_manifest(&manifest).unwrap();
        assert_eq!(published["os"], json!(["linux"]));
        assert_eq!(published["files"], json!(["dist", "LICENSE-APACHE", "LICENSE-MIT", "*.cdx.json"]));
        assert!(published.get("scripts").is_none() && published.get("devDependencies").is_none());
    }
}
