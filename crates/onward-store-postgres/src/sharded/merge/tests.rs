//! Tests of the parent module.

use super::*;

#[test]
fn merged_lists_keep_the_order_of_each() {
    let lists = vec![vec![1, 4, 2], vec![], vec![3, 3]];
    assert_eq!(merge(lists.clone(), 10, |row| *row), [1, 3, 3, 4, 2]);
    assert_eq!(merge(lists, 2, |row| *row), [1, 3]);
}

#[test]
fn who_takes_turns_comes_as_often_as_the_others() {
    assert_eq!(take_turns(vec![vec![1, 2, 3], vec![10], vec![20, 21]], 5), [1, 10, 20, 2, 21]);
    assert_eq!(take_turns(vec![vec![1, 2, 3], vec![10]], 9), [1, 10, 2, 3]);
    assert_eq!(take_turns(vec![vec![1]], 0), [] as [i32; 0]);
}

#[test]
fn parts_are_the_whole() {
    assert_eq!(parts(7, 3), [3, 2, 2]);
    assert_eq!(parts(1, 3), [1, 0, 0]);
    assert_eq!(parts(usize::MAX, 2).iter().sum::<usize>(), usize::MAX);
}
