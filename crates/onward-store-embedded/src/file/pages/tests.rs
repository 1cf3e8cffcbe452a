//! Tests of the parent module.

use super::*;

fn summed(number: u64) -> [u8; PAGE_BYTES] {
    let mut page = [7; PAGE_BYTES];
    let sum = sum(number, &page);
    page[PAGE_BYTES - SUM_BYTES..].copy_from_slice(&sum);
    page
}

#[test]
fn a_changed_byte_or_another_place_makes_a_page_wrong() {
    for number in [1, 2, 900] {
        let page = summed(number);
        assert_eq!(check(number, &page), Sum::Right);
        assert_eq!(check(number + 1, &page), Sum::Wrong);
        for at in 0..PAGE_BYTES {
            let mut changed = page;
            changed[at] ^= 0x20;
            let is_volatile = number == 1 && VOLATILE.iter().any(|range| range.contains(&at));
            assert_eq!(check(number, &changed), if is_volatile { Sum::Right } else { Sum::Wrong }, "byte {at} of page {number}");
        }
    }
}

#[test]
fn a_page_without_a_checksum_is_none_of_ours() {
    let mut page = summed(3);
    page[PAGE_BYTES - SUM_BYTES..].fill(0);
    assert_eq!(check(3, &page), Sum::Missing);
}

#[test]
fn a_new_database_has_checksums_in_all_pages_and_its_schema_in_the_first() {
    register();
    let directory = std::env::temp_dir().join(format!("onward-pages-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("onward.db");
    crate::file::schema::create(&path, crate::file::schema::fill_empty).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    // The schema fits into the first page, so that none of its pages is accepted with a wrong checksum.
    assert_eq!(bytes[100], crate::repair::salvage::TABLE_LEAF, "the schema no longer fits into one page");
    assert_eq!(usize::from(bytes[20]), SUM_BYTES);
    for (number, page) in (1..).zip(bytes.chunks_exact(PAGE_BYTES)) {
        assert_eq!(check(number, page), Sum::Right, "page {number}");
    }
}
