//! Tests of the parent module.

use onward_core::{Namespace, RunId};

use super::*;

#[derive(Debug, PartialEq)]
struct Write(u32, Vec<RunKey>, usize);

impl Waits for Write {
    fn runs(&self) -> Vec<&RunKey> {
        self.1.iter().collect()
    }

    fn bytes(&self) -> usize {
        self.2
    }
}

fn write(number: u32, run: &str, bytes: usize) -> Write {
    Write(number, vec![RunKey::new(Namespace::default(), RunId::new(run).unwrap())], bytes)
}

fn batches(lanes: &mut Lanes<Write>) -> Vec<Vec<u32>> {
    let mut batches = Vec::new();
    while !lanes.is_empty() {
        batches.push(lanes.take(10, |_| true).iter().map(|write| write.0).collect());
    }
    batches
}

const LARGE: usize = LARGE_WRITE_BYTES;

#[test]
fn a_small_write_waits_for_one_large_one_at_most() {
    let mut lanes = Lanes::default();
    for number in 0..4 {
        lanes.push(write(number, &format!("large-{number}"), LARGE));
    }
    lanes.push(write(10, "a", 1));
    lanes.push(write(11, "b", 1));
    assert_eq!(lanes.take(10, |_| true)[0].0, 0);
    assert_eq!(lanes.take(10, |_| true).len(), 2, "both small writes before the next large one");
    lanes.push(write(12, "a", 1));
    assert_eq!(batches(&mut lanes), [vec![1], vec![12], vec![2], vec![3]]);
}

#[test]
fn large_writes_are_not_kept_waiting_by_small_ones() {
    let mut lanes = Lanes::default();
    let mut order = Vec::new();
    lanes.push(write(0, "large", LARGE));
    lanes.push(write(1, "large", LARGE));
    for number in 10..14 {
        lanes.push(write(number, "a", 1));
        order.push(lanes.take(10, |_| true)[0].0);
    }
    assert_eq!(order, [0, 10, 1, 12], "11 went with 10, and 13 with 12");
}

#[test]
fn writes_of_a_run_stay_in_their_order_behind_a_large_one() {
    let mut lanes = Lanes::default();
    lanes.push(write(0, "a", LARGE));
    lanes.push(write(1, "b", LARGE));
    lanes.push(write(2, "a", 1));
    lanes.push(write(3, "c", 1));
    lanes.push(Write(4, vec![write(0, "b", 0).1.remove(0), write(0, "c", 0).1.remove(0)], 1));
    lanes.push(write(5, "c", 1));
    assert_eq!(batches(&mut lanes), [vec![0], vec![3], vec![1], vec![2], vec![4], vec![5]], "LN1");
    assert!(lanes.held.is_empty());
    lanes.push(write(6, "a", 1));
    assert_eq!(lanes.small.len(), 1, "no write of the run is left in the large lane");
}

#[test]
fn what_does_not_fit_or_was_put_back_keeps_its_place() {
    let mut lanes = Lanes::default();
    (0..5).for_each(|number| lanes.push(write(number, "a", 1)));
    let taken = lanes.take(10, |write| write.0 != 2);
    assert_eq!(taken.len(), 2);
    lanes.put_back(taken.into_iter());
    assert_eq!(lanes.take(1, |_| false)[0].0, 0, "at least one");
    assert_eq!(batches(&mut lanes), [vec![1, 2, 3, 4]]);
}
