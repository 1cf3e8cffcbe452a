//! Tests of the parent module.

use super::*;

#[test]
fn a_problem_names_its_causes_once() {
    let source = onward_core::Name::new("").unwrap_err();
    let problem = Problem::from(RuntimeError::IdInvalid { what: "signal id", source });
    assert_eq!(problem.detail, "the signal id is invalid: a name must not be empty");
    let problem = Problem::from(RuntimeError::from(onward_store::StoreError::DiskFull));
    assert_eq!((problem.status.as_u16(), problem.detail.as_str()), (507, "the disk is full"));
}
