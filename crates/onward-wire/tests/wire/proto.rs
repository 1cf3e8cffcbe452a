//! The `.proto` file and its descriptor: generated from the code, compiled by an independent compiler.

use std::path::PathBuf;

use prost_reflect::prost::Message as _;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("proto").join(name)
}

/// Compiles the descriptor with protox, without comments, as reflection serves it.
fn compile() -> Vec<u8> {
    let directory = file("");
    let mut compiler = protox::Compiler::new([&directory]).unwrap();
    compiler.open_file(file("onward.proto")).unwrap();
    compiler.file_descriptor_set().encode_to_vec()
}

#[test]
fn proto_file_and_descriptor_match_the_code() {
    let (path, text) = (file("onward.proto"), onward_wire::proto::text());
    if std::env::var_os("ONWARD_GEN").is_some() {
        std::fs::create_dir_all(file("")).unwrap();
        std::fs::write(&path, &text).unwrap();
        std::fs::write(file("onward.bin"), compile()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "{} is out of date; `cargo xtask gen` writes it", path.display());
    assert!(
        std::fs::read(file("onward.bin")).unwrap() == compile(),
        "the descriptor is not the file's; `cargo xtask gen` makes it"
    );
}
