//! Workers and clients over an unreliable network.
//!
//! Each random case prints its seed; `ONWARD_SEED` runs that one alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ag_ui;
mod cluster;
mod cuts;
mod large;
mod leaving;
mod limited;
mod many;
mod partitions;
mod poison;
mod proxy;
mod quotas;
mod restarts;
mod resuming;
mod site;
mod streams;
mod workload;
mod zombie;

/// Runs `case` with each seed, or with that of `ONWARD_SEED`.
async fn with_seeds(seeds: std::ops::Range<u64>, case: impl AsyncFn(u64)) {
    let named = std::env::var("ONWARD_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in named.map_or(seeds, |seed: u64| seed..seed + 1) {
        println!("reproduce with ONWARD_SEED={seed}");
        tokio::time::timeout(site::DEADLINE, case(seed)).await.expect("everything finishes once the network is well");
    }
}
