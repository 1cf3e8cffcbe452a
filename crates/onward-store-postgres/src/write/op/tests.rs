//! Tests of the parent module.

use super::*;

/// F26: expiry runs beside the appends, not between them.
#[test]
fn a_look_for_what_is_due_is_in_no_appenders_way() {
    let queues = Queues::new(2);
    queues.submit(Op::Expire(1, Slot::new()));
    for number in 0..20 {
        let key = RunKey::new(Default::default(), onward_core::RunId::new(format!("r{number}")).unwrap());
        queues.submit(Op::Run(RunOp::Release(key, onward_core::Epoch(1), Slot::new())));
    }
    let waiting: Vec<usize> = (0..queues.count()).map(|number| queues.get(number).lock().ops.len()).collect();
    assert_eq!((waiting.len(), waiting[2], waiting[0] + waiting[1]), (3, 1, 20));
    assert!(waiting[0] > 0 && waiting[1] > 0);
}
