//! Servers that die and come back.

use std::time::Duration;

use onward::Onward;

use crate::proxy::Random;
use crate::site::Site;
use crate::story::{Ran, check, tell, worker};
use crate::with_seeds;

const RUNS: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_come_back_to_a_server_that_was_killed_and_nothing_is_lost() {
    with_seeds(0..2, async |seed| {
        let mut site = Site::directory().await;
        let (url, ran, mut random) = (format!("http://{}", site.address), Ran::default(), Random::new(seed));
        let _workers = [worker(&url, &ran).start().await.unwrap(), worker(&url, &ran).start().await.unwrap()];
        let client = Onward::connect(&url).start().await.unwrap();
        let telling = async {
            for n in 0..RUNS {
                tell(&client, n).await;
            }
        };
        let killing = async {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_millis(50 + random.below(200))).await;
                site.kill().await;
                tokio::time::sleep(Duration::from_millis(random.below(100))).await;
                site.revive().await;
            }
        };
        tokio::join!(telling, killing);
        for n in 0..RUNS {
            check(&site, &client, &ran, n).await;
        }
    })
    .await;
}
