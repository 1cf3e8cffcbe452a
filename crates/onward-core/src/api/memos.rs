//! Requests about memos.

use crate::{Namespace, RunKey, message};

message! {
    /// A request to use the recorded results of memos no more.
    pub struct InvalidateMemosRequest {
        1 => namespace: Namespace,
        /// The key, or the beginning of the keys. A key that was not given in code is `KIND#HASH` for a task and
        /// `WORKFLOW/STEP#HASH` for a step.
        2 => key: String,
        /// All memos whose keys begin with `key`.
        3 => is_prefix: bool,
        /// A run of the tree whose memos are meant; without it, memos of the namespace are.
        4 => run: Option<RunKey>,
    }

    /// The number of memos that were invalidated.
    #[derive(Copy, Eq)]
    pub struct InvalidateMemosReply { 1 => invalidated: u64 }
}
