//! Tests of the parent module.

use super::*;

#[test]
fn an_exhausted_limit_is_doubled_and_the_others_stay() {
    let limit = Budget::default().tokens(10).turns(3).cost(PicoDollars::parse("1").unwrap());
    let mut budget = BudgetHead::of(limit);
    assert_eq!(raised(&budget, None, Timestamp(0)), Budget::default());
    budget.turns = 3;
    assert_eq!(raised(&budget, None, Timestamp(0)), Budget::default().turns(6));
    budget.children.tokens = 25;
    assert_eq!(raised(&budget, None, Timestamp(0)), Budget::default().tokens(50).turns(6));
}
