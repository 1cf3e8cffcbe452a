//! Tests of the parent module.

use super::*;

/// I9.
#[test]
fn every_list_of_runs_is_read_from_an_index_alone() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(&crate::file::schema::make_tables()).unwrap();
    let name = |text: &str| Name::new(text).unwrap();
    let attribute = onward_core::AttributeMatch::typed(name("color"), "red");
    let range = (Some(Timestamp(1)), Some(Timestamp(9)));
    for bits in 0..32 {
        let has = |bit: u32| bits & (1 << bit) != 0;
        let query = RunQuery {
            kind: has(0).then(|| name("order")),
            versions: if has(1) { vec![None, Some(name("v2"))] } else { Vec::new() },
            attributes: if has(2) { vec![attribute.clone()] } else { Vec::new() },
            created_from: range.0.filter(|_| has(3)),
            created_until: range.1.filter(|_| has(3)),
            ..RunQuery::default()
        };
        let before = (Timestamp(5), "x");
        for status in [None, Some(1)] {
            let (sql, params) = select(&query, status, Some(before).filter(|_| has(4)), 10);
            let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan: Vec<String> = plan
                .query_map(rusqlite::params_from_iter(params.iter()), |row| row.get(3))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            assert!(plan[0].contains("USING COVERING INDEX runs_"), "{sql}: {plan:?}");
            assert!(!plan.iter().any(|step| step.contains("TEMP B-TREE FOR")), "{sql}: {plan:?}");
        }
    }
}
