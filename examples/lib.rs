//! The code in the repository's documents, compiled and run by `cargo test --doc`.

#![forbid(unsafe_code)]

#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/guide/workflows.md")]
    mod workflows {}
    #[doc = include_str!("../docs/guide/testing.md")]
    mod testing {}
    #[doc = include_str!("../docs/guide/versions.md")]
    mod versions {}
    #[doc = include_str!("../docs/guide/cancellation.md")]
    mod cancellation {}
    #[doc = include_str!("../docs/guide/remote.md")]
    mod remote {}
    #[doc = include_str!("../docs/guide/agents.md")]
    mod agents {}
    #[doc = include_str!("../docs/guide/models.md")]
    mod models {}
    #[doc = include_str!("../docs/guide/streams.md")]
    mod streams {}
    #[doc = include_str!("../docs/guide/spend.md")]
    mod spend {}
    #[doc = include_str!("../docs/guide/chat.md")]
    mod chat {}
}
