//! Tests of the parent module.

use super::*;

#[test]
fn calls_that_go_out_together_count_their_values_on() {
    let calls =
        vec![Sql::call("put_outbox").numbers(vec![1]).byteses(vec![Vec::new()]), Sql::call("open_sessions").texts(Vec::new())];
    let all = Sql::all(calls);
    assert_eq!((all.text.as_str(), all.values.len()), ("SELECT onward.put_outbox($1, $2), onward.open_sessions($3)", 3));
}
