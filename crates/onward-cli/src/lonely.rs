//! What runs wait for and nobody offers: models and tasks of which no worker is known.

use onward_core::view::{Awaited, AwaitedKind, RunView};
use onward_runtime::WorkerInfo;

use crate::site::Site;

/// How the tasks begin that call a model.
const MODEL: &str = "llm.";

/// What a run waits for that nobody offers; nothing where that cannot be asked.
pub async fn of(site: &Site, view: &RunView) -> Vec<String> {
    if view.awaiting.iter().all(|awaited| awaited.kind != AwaitedKind::Task) {
        return Vec::new();
    }
    match site.list_workers(view.head.key.namespace.clone()).await {
        Ok(workers) => sentences(&view.awaiting, &workers),
        Err(_) => Vec::new(),
    }
}

/// One sentence for each task that no worker has.
fn sentences(awaiting: &[Awaited], workers: &[WorkerInfo]) -> Vec<String> {
    let tasks = awaiting.iter().filter(|awaited| awaited.kind == AwaitedKind::Task).filter_map(|awaited| awaited.name.as_ref());
    let is_lonely = |task: &&onward_core::Name| !workers.iter().any(|worker| worker.task_kinds.contains(task));
    let mut sentences: Vec<String> = tasks.filter(is_lonely).map(|task| sentence(task.as_str(), workers)).collect();
    sentences.sort();
    sentences.dedup();
    sentences
}

fn sentence(task: &str, workers: &[WorkerInfo]) -> String {
    let Some(model) = task.strip_prefix(MODEL) else { return format!("no worker has the task `{task}` now") };
    let offered = workers.iter().flat_map(|worker| &worker.task_kinds).filter_map(|kind| kind.as_str().strip_prefix(MODEL));
    let mut offered: Vec<String> = offered.map(|model| format!("`{model}`")).collect();
    offered.sort();
    offered.dedup();
    let offered = if offered.is_empty() { "no model at all".to_owned() } else { offered.join(", ") };
    format!("nobody offers the model `{model}` now; offered is {offered}")
}

#[cfg(test)]
mod tests {
    use onward_core::{Name, Timestamp, WorkerId};

    use super::*;

    fn awaited(kind: AwaitedKind, name: &str) -> Awaited {
        let name = Some(Name::new(name).unwrap());
        Awaited { kind, name, id: "r~0~0".to_owned(), place: None, since: Timestamp(0), deadline: None, child: None }
    }

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

    #[test]
    fn only_what_nobody_offers_is_told_with_what_there_is() {
        let awaiting = [
            awaited(AwaitedKind::Task, "llm.gpt-5o"),
            awaited(AwaitedKind::Task, "llm.gpt-4o"),
            awaited(AwaitedKind::Task, "charge"),
            awaited(AwaitedKind::Signal, "llm.x"),
        ];
        let workers = [worker(&["llm.gpt-4o", "llm.small"]), worker(&["llm.gpt-4o"])];
        assert_eq!(
            sentences(&awaiting, &workers),
            ["no worker has the task `charge` now", "nobody offers the model `gpt-5o` now; offered is `gpt-4o`, `small`"]
        );
        assert_eq!(sentences(&awaiting[..1], &[]), ["nobody offers the model `gpt-5o` now; offered is no model at all"]);
        assert!(sentences(&awaiting[1..2], &workers).is_empty());
    }
}
