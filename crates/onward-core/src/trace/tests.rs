//! Tests of the parent module.

use super::*;
use crate::{Namespace, RunId};

#[test]
fn a_context_reads_back_from_its_text() {
    let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let context = TraceContext::parse(text).unwrap();
    assert!(context.sampled);
    assert_eq!(context.to_string(), text);
    assert!(!TraceContext::parse(&text.replace("-01", "-00")).unwrap().sampled);
    assert!(
        TraceContext::parse(&(text.replacen("00", "cc", 1) + "-what-comes-later")).is_some(),
        "later versions may append fields"
    );
}

#[test]
fn what_is_no_context_is_none() {
    for text in [
        "",
        "00",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        "00-ä0af7651916cd43dd8448eb211c8031-b7ad6b7169203331-01",
    ] {
        assert_eq!(TraceContext::parse(text), None, "{text}");
    }
}

#[test]
fn every_span_of_a_run_has_an_id_of_its_own() {
    let key = |id: &str| RunKey::new(Namespace::default(), RunId::new(id).unwrap());
    let (run, call_id) = (key("a"), CallId::root(1));
    let task = TaskId { run: run.clone(), generation: 0, call_id: call_id.clone(), incarnation: None };
    let mut ids = vec![
        run_span(&run),
        run_span(&key("b")),
        activation_span(&run, 0, 1),
        activation_span(&run, 0, 2),
        activation_span(&run, 1, 1),
        call_span(&run, 0, &call_id),
        call_span(&run, 1, &call_id),
        step_span(&run, 0, &call_id, 1),
        step_span(&run, 0, &call_id, 2),
        task_span(&task, 1),
        task_span(&task, 2),
    ];
    assert_eq!(run_span(&run), ids[0], "ids are deterministic");
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}
