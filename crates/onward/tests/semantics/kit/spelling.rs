//! Equal values are equal in any encoding: hash maps have another order each time they are created.

use std::collections::{HashMap, HashSet};

use onward::prelude::*;
use onward::testing::Script;
use onward_core::Payload;

type Map = HashMap<String, u32>;

fn map() -> Map {
    (0..20).map(|number| (format!("k{number}"), number)).collect()
}

/// A workflow with a map in every payload that it can hand over.
async fn maps(ctx: Ctx, map: Map) -> Result<Map> {
    let sum: u32 = ctx.task("sum", &map).await?;
    ctx.state().set("map", &map)?;
    let kept = ctx.step("keep", async || Ok::<_, Failure>(map.clone())).input(&map).await?;
    let child: Map = ctx.child("same", &kept).await?;
    ctx.send_signal("other", "map", &child)?;
    ctx.approval("a", "title").show(&child).await?;
    let map = ctx.signal("map").recv::<Map>().await?;
    if map.len() as u32 == sum { Ok(map) } else { Err(Failure::fatal("lost").with_details(Payload::json(&map)?)) }
}

#[test]
fn hash_maps_in_payloads_are_no_divergence() {
    let sum = |map: Map| Ok(map.len() as u32);
    for signal in [map(), Map::from([("one".to_owned(), 1), ("two".to_owned(), 2), ("three".to_owned(), 3)])] {
        let script =
            Script::new(maps, &map()).task("sum", sum).child("same", Ok::<Map, _>).approve("a").signal(secs(1), "map", &signal);
        script.crash_everywhere();
        script.assert_deterministic();
        script.schedules(5);
    }
}

/// A set is encoded as an array, whose order matters.
#[test]
fn a_hash_set_in_a_payload_is_a_divergence() {
    async fn sets(ctx: Ctx, set: HashSet<u32>) -> Result<u32> {
        ctx.task("sum", &set).await
    }
    let script = Script::new(sets, &(0..40).collect::<HashSet<u32>>()).task("sum", |set: Vec<u32>| Ok(set.len() as u32));
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| script.run()));
    assert!(played.is_err());
}
