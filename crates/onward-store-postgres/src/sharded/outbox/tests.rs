//! Tests of the parent module.

use super::*;

#[test]
fn a_delivery_is_found_again_by_its_number_and_no_two_share_one() {
    let mut numbers = std::collections::BTreeSet::new();
    for count in [1, 3, 7] {
        numbers.clear();
        for position in 0..count {
            for id in [0, 1, 2, u64::from(u32::MAX), i64::MAX as u64 / 7] {
                let number = outer(OutboxId(id), position, count).unwrap();
                assert_eq!(inner(number, count), (position, OutboxId(id)));
                assert!(numbers.insert(number), "{number:?}");
            }
        }
    }
    assert_eq!(outer(OutboxId(u64::MAX), 0, 2).unwrap_err().code(), "store_corrupt");
}
