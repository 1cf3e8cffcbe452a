//! Sentences that explain why the tasks of a run are blocked: no worker serves them, a key is rate-limited, they are quarantined,
//! or the next attempt is not due.

use onward_core::task::MODEL_CALL;
use onward_core::{RunKey, Timestamp};
use onward_runtime::{BlockReason, Blocker, WorkerInfo};

use crate::connection::Site;
use crate::directory::shell_word;
use crate::output::time;

/// Reads why the tasks of a run are blocked; empty on errors. On a directory, leaves out reasons that depend on workers, which
/// only the server process knows.
pub async fn of(site: &Site, key: &RunKey) -> Vec<Blocker> {
    let mut found = site.read_blockers(key.clone()).await.map(|reply| reply.blocked_on).unwrap_or_default();
    found.retain(|blocker| !site.is_directory || matches!(blocker.why, BlockReason::Quarantined | BlockReason::Retries));
    found
}

/// Returns one sentence for each distinct reason.
pub async fn sentences(site: &Site, blocked_on: &[Blocker]) -> Vec<String> {
    let is_lonely = blocked_on.iter().any(|blocker| blocker.why == BlockReason::NoWorker);
    let workers = match is_lonely {
        true => site.list_workers(site.namespace.clone()).await.map(|reply| reply.workers).unwrap_or_default(),
        false => Vec::new(),
    };
    let now = time::now();
    let mut sentences: Vec<String> = blocked_on.iter().map(|blocker| sentence(blocker, &workers, now)).collect();
    sentences.sort();
    sentences.dedup();
    sentences
}

fn sentence(blocker: &Blocker, workers: &[WorkerInfo], now: Timestamp) -> String {
    let Blocker { task: _, kind, why, since, until, lost_workers, failure_code } = blocker;
    let (model, until) = (kind.as_str().strip_prefix(MODEL_CALL), until.unwrap_or(now));
    match why {
        BlockReason::NoWorker => match model {
            Some(model) => {
                let offered = offered(workers);
                format!("no worker serves model `{model}` (available: {offered}); the run is waiting")
            }
            None => format!("no worker serves task `{kind}`; the run is waiting"),
        },
        BlockReason::LimitClosed => {
            let what = match model {
                Some(model) => format!("the provider rate-limits the key of model `{model}`"),
                None => format!("calls of task `{kind}` are rate-limited"),
            };
            format!("{what}; the run waits until {}", time::moment(until, now))
        }
        BlockReason::Quarantined => {
            let (since, id) =
                (since.map_or(String::new(), |since| format!(" since {}", time::moment(since, now))), blocker.task_ref());
            let vanished = format!("it lost {lost_workers} workers in a row");
            let release = format!("find out why, then run `onward queue retry {}`", shell_word(&id));
            format!("task {id} (`{kind}`) is in quarantine{since}: {vanished}; {release}")
        }
        BlockReason::Retries => {
            let what = match model {
                Some(model) => format!("model `{model}`"),
                None => format!("task `{kind}`"),
            };
            let failed = failure_code.as_ref().map_or(String::new(), |code| format!("; the last one failed with {code}"));
            format!("{what}: next attempt {}{failed}", time::until(until, now))
        }
    }
}

fn offered(workers: &[WorkerInfo]) -> String {
    let offered = workers.iter().flat_map(|worker| &worker.task_kinds).filter_map(|kind| kind.as_str().strip_prefix(MODEL_CALL));
    let mut offered: Vec<String> = offered.map(|model| format!("`{model}`")).collect();
    offered.sort();
    offered.dedup();
    if offered.is_empty() { "none".to_owned() } else { offered.join(", ") }
}

#[cfg(test)]
mod tests {
    use onward_core::{Name, Namespace, WorkerId};
    use onward_runtime::CallRef;

    use super::*;

    fn worker(tasks: &[&str]) -> WorkerInfo {
        WorkerInfo {
            id: WorkerId::new("w").unwrap(),
            kinds: Vec::new(),
            task_kinds: tasks.iter().map(|task| Name::new(*task).unwrap()).collect(),
            queues: vec![None],
            runs: 0,
            runs_max: 1,
            heard_at: None,
        }
    }

    fn said(kind: &str, why: BlockReason, workers: &[WorkerInfo]) -> String {
        let now = Timestamp(1_800_000_000_000);
        let blocker = Blocker {
            task: CallRef::parse(&Namespace::default(), "r~0~3").unwrap().into(),
            kind: Name::new(kind).unwrap(),
            why,
            since: (why == BlockReason::Quarantined).then_some(Timestamp(1_799_999_880_000)),
            until: Some(now.after(std::time::Duration::from_secs(12))),
            lost_workers: 6,
            failure_code: Some("model_rate_limited".to_owned()),
        };
        sentence(&blocker, workers, now)
    }

    #[test]
    fn what_nobody_offers_is_told_with_what_there_is() {
        let workers = [worker(&["llm.gpt-4o", "llm.small"]), worker(&["llm.gpt-4o"])];
        let no_worker = |kind, workers| said(kind, BlockReason::NoWorker, workers);
        assert_eq!(no_worker("charge", &workers), "no worker serves task `charge`; the run is waiting");
        assert_eq!(
            no_worker("llm.gpt-5o", &workers),
            "no worker serves model `gpt-5o` (available: `gpt-4o`, `small`); the run is waiting"
        );
        assert!(no_worker("llm.gpt-5o", &[]).contains(" (available: none); "));
    }

    #[test]
    fn a_wait_is_told_with_its_end_or_with_what_ends_it() {
        assert_eq!(
            said("llm.m", BlockReason::LimitClosed, &[]),
            "the provider rate-limits the key of model `m`; the run waits until 2027-01-15T08:00:12.000Z (in 12.0 s)"
        );
        assert_eq!(
            said("llm.m", BlockReason::Quarantined, &[]),
            "task r~0~3 (`llm.m`) is in quarantine since 2027-01-15T07:58:00.000Z (2 min ago): it lost 6 workers in a row; \
             find out why, then run `onward queue retry r~0~3`"
        );
        assert_eq!(
            said("llm.m", BlockReason::Retries, &[]),
            "model `m`: next attempt in 12.0 s; the last one failed with model_rate_limited"
        );
    }
}
