//! The code in the repository's documents, compiled and run by `cargo test --doc`.

#![forbid(unsafe_code)]

#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/tour/1-first-workflow.md")]
    mod first_workflow {}
    #[doc = include_str!("../docs/tour/2-crash-it.md")]
    mod crash_it {}
    #[doc = include_str!("../docs/tour/3-add-a-person.md")]
    mod add_a_person {}
    #[doc = include_str!("../docs/tour/4-add-an-agent.md")]
    mod add_an_agent {}
    #[doc = include_str!("../docs/guide/coming-from.md")]
    mod coming_from {}
    #[doc = include_str!("../docs/guide/workflows.md")]
    mod workflows {}
    #[doc = include_str!("../docs/guide/testing.md")]
    mod testing {}
    #[doc = include_str!("../docs/guide/schedules.md")]
    mod schedules {}
    #[doc = include_str!("../docs/guide/versions.md")]
    mod versions {}
    #[doc = include_str!("../docs/guide/middleware.md")]
    mod middleware {}
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
