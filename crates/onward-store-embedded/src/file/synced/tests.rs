//! Tests of the parent module.

use super::*;

#[test]
fn any_changed_byte_of_the_mark_is_found() {
    let directory = std::env::temp_dir().join(format!("onward-mark-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join(SYNCED);
    assert!(!SyncMark::is_damaged(&directory), "there is none");
    std::fs::write(&file, [0; BYTES]).unwrap();
    assert!(!SyncMark::is_damaged(&directory), "never written");
    let mark = SyncMark { salts: [1, 2, 3, 4, 5, 6, 7, 8], frames: 70_000, is_closed: false };
    std::fs::write(&file, mark.bytes()).unwrap();
    assert!(!SyncMark::is_damaged(&directory) && SyncMark::read(&directory) == Some(mark.clone()));
    for at in 0..BYTES {
        let mut bytes = mark.bytes();
        bytes[at] ^= 0x10;
        std::fs::write(&file, bytes).unwrap();
        assert!(SyncMark::is_damaged(&directory), "byte {at}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
