//! `POST /v1/memos/invalidate`: recorded results that are not to be used again.

use onward_core::api::{InvalidateMemosRequest, verb};
use onward_core::{RunId, RunKey};

use super::prelude::*;

bodies! {
    struct InvalidateBody as InvalidateMemos {
        /// The key of one memo.
        key: Option<String>,
        /// The beginning of the keys of all memos to invalidate; instead of `key`.
        prefix: Option<String>,
        /// A run of the tree whose memos are meant; without it, memos of the namespace are.
        run: Option<String> as Option<Name>,
    }
}

pub(crate) async fn invalidate(mut request: Request) -> Result<Response, Problem> {
    let InvalidateBody { key, prefix, run } = request.json().await?;
    let (key, is_prefix) = match (key, prefix) {
        (Some(key), None) => (key, false),
        (None, Some(prefix)) => (prefix, true),
        _ => return Err(RequestError::MessageInvalid { why: "give either `key` or `prefix`".to_owned() }.into()),
    };
    let namespace = request.by.namespace.clone();
    let run = run.map(RunId::new).transpose()?.map(|run| RunKey::new(namespace.clone(), run));
    let invalidate = InvalidateMemosRequest { namespace, key, is_prefix, run };
    Ok(json(StatusCode::OK, &request.execute::<verb::InvalidateMemos>(invalidate).await?))
}
