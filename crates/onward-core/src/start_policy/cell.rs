//! The identity of a cell, and the ids under which it is kept.
//!
//! A cell has one of two ids in turn. When it has ended, the next one has the other id, and the ended one is kept for repeats of
//! requests that it has seen.

use super::policy::{PolicyType, StartPolicy};
use crate::internal::InternalRuns;
use crate::{Hash, Name, RunId, message};

message! {
    /// The starts that a cell combines.
    #[derive(Eq)]
    pub struct PolicyCell {
        1 => policy: PolicyType,
        2 => kind: Name,
        3 => key: String,
        /// The credential, for a batch: inputs of different credentials are never in one run (SP5).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => requester: Option<String>,
    }
}

impl PolicyCell {
    /// Returns the cell of a start of `kind` by `requester`.
    pub fn of(policy: &StartPolicy, kind: &Name, requester: Option<&str>) -> PolicyCell {
        let policy_type = policy.policy_type();
        let requester = requester.filter(|_| policy_type == PolicyType::Batch).map(str::to_owned);
        PolicyCell { policy: policy_type, kind: kind.clone(), key: policy.key().to_owned(), requester }
    }

    /// Returns the id that stands for the cell where inputs are encrypted: a client knows its parts. No run has it.
    pub fn context(&self) -> RunId {
        let hash = Hash::of_parts(&[self.kind.as_str().as_bytes(), self.key.as_bytes()]);
        let (prefix, policy) = (InternalRuns::StartPolicies.prefix(), self.policy.as_str());
        RunId::new(format!("{prefix}{policy}:{hash}")).expect("a prefix and a hash are an id")
    }

    /// Returns the two ids of the cell.
    pub fn ids(&self) -> [RunId; 2] {
        let requester =
            self.requester.as_ref().map(|name| format!(":{}", Hash::of_parts(&[name.as_bytes()]))).unwrap_or_default();
        let context = self.context();
        [0, 1].map(|turn| RunId::new(format!("{context}{requester}.{turn}")).expect("a prefix and two hashes are an id"))
    }
}

/// Returns the type of the policy of a cell; `None` if the run is no cell.
pub fn policy_of(id: &RunId) -> Option<PolicyType> {
    let (policy, _) = id.as_str().strip_prefix(InternalRuns::StartPolicies.prefix())?.split_once(':')?;
    PolicyType::ALL.iter().copied().find(|of| of.as_str() == policy)
}

/// Returns the id for which the inputs of a cell are encrypted; `None` if the run is no cell.
pub fn context_of(id: &RunId) -> Option<RunId> {
    policy_of(id)?;
    let mut ends = id.as_str().match_indices([':', '.']).map(|(at, _)| at).skip(2);
    RunId::new(&id.as_str()[..ends.next()?]).ok()
}
