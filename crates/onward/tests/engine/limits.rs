//! Payloads that are too large: the code gets an error, or the failure is recorded, and no effect is repeated because of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::{Builder, OnParentClose, Onward};

use crate::site::{PAYLOAD_BYTES_MAX, Site, count, eventually, everywhere, paused};
use crate::tight::TightStore;
use crate::warnings::Warnings;

/// Returns one byte more than the limit.
fn large() -> String {
    "x".repeat(PAYLOAD_BYTES_MAX - 1) // and two quotes
}

/// Counts how often an effect happens.
#[derive(Clone, Default)]
struct Effects(Arc<AtomicU32>);

impl Effects {
    fn happen(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

async fn engine(site: &Site, build: impl FnOnce(Builder) -> Builder) -> (Onward, Effects) {
    let effects = Effects::default();
    (build(site.builder().await.dep(effects.clone())).start().await.unwrap(), effects)
}

/// Checks that the failure has a code, both sizes and a way out.
#[track_caller]
fn check(site: &Site, failure: &Failure, what: &str) {
    assert_eq!((failure.code.as_str(), failure.retryable), ("payload_too_large", false), "{failure}");
    // A codec needs a part of the limit.
    let limit = if site.is_sealed { PAYLOAD_BYTES_MAX - 1_024 } else { PAYLOAD_BYTES_MAX };
    let sizes = format!("{what} has {} bytes, over the limit of {limit};", PAYLOAD_BYTES_MAX + 1);
    assert!(failure.message.starts_with(&sizes) && failure.message.contains("pass a reference"), "{failure}");
}

everywhere! {
    async fn a_step_whose_result_is_too_large_has_failed_and_does_not_run_again(site) {
        async fn code(ctx: Ctx, (): ()) -> Result<Failure> {
            let effects = ctx.dep::<Effects>();
            let step = ctx.step("large", async || {
                effects.happen();
                Ok::<_, Failure>(large())
            });
            let failure = step.retry(5).await.expect_err("it is too large");
            ctx.signal("go on").recv::<()>().await?;
            Ok(failure)
        }
        let (onward, effects) = engine(site, |builder| builder.workflow("w", code)).await;
        let run = onward.start::<Failure, _>("w", &()).id("r").await.unwrap();
        run.until(|view| !view.awaiting.is_empty()).await.unwrap();
        drop(run);
        onward.shutdown().await;
        assert_eq!(effects.count(), 1);

        let (onward, effects) = engine(site, |builder| builder.workflow("w", code)).await;
        let run = onward.run::<Failure>("r").unwrap();
        run.signal("go on", &()).await.unwrap();
        check(site, &run.result().await.unwrap(), "the result of step `large`");
        assert_eq!((effects.count(), count(&run, "step_failed").await), (0, 1), "it is recorded");
    }

    async fn a_task_whose_result_is_too_large_fails_with_the_limit(site) {
        async fn call_large(ctx: Ctx, (): ()) -> Result<Failure> {
            Ok(ctx.task::<String>("large", &()).await.expect_err("it is too large"))
        }
        let build = |builder: Builder| builder.workflow("w", call_large).task("large", async |()| Ok::<_, Failure>(large()));
        let (onward, _) = engine(site, build).await;
        let run = onward.start::<Failure, _>("w", &()).await.unwrap();
        let failure = run.result().await.unwrap();
        assert_eq!((failure.code.as_str(), failure.retryable), ("payload_too_large", false));
        assert!(failure.message.contains("over the limit") && failure.message.contains("pass a reference"), "{failure}");
    }

    /// Each of these comes after a step, which must not run again because of it.
    async fn whatever_the_code_hands_over_that_is_too_large_is_an_error_of_that_call(site) {
        async fn code(ctx: Ctx, (): ()) -> Result<Vec<Failure>> {
            let effects = ctx.dep::<Effects>();
            let effect = async || {
                effects.happen();
                Ok::<_, Failure>(())
            };
            let mut failures = Vec::new();
            ctx.step("before the state", effect).await?;
            ctx.state().set("size", &1)?;
            failures.extend(ctx.state().set("size", &large()).err());
            assert_eq!(ctx.state().get("size")?, Some(1));
            ctx.step("before the signal", effect).await?;
            failures.extend(ctx.send_signal("somebody", "hello", &large()).err());
            ctx.step("before the task", effect).await?;
            failures.extend(ctx.task::<()>("t", &large()).retry(5).queue("q").await.err());
            ctx.step("before the child", effect).await?;
            let child = ctx.child::<()>("c", &large()).on_parent_close(OnParentClose::Abandon);
            assert_eq!(child.run_id(), None);
            failures.extend(child.await.err());
            ctx.step("before the approval", effect).await?;
            failures.extend(ctx.approval("a", "Sure?").show(&large()).within(days(1)).await.err());
            ctx.step("before the emit", effect).await?;
            failures.extend(ctx.emit("news", &large()).err());
            ctx.step("before going on as new", effect).await?;
            failures.extend(ctx.continue_as_new::<(), _>(&large()).await.err());
            ctx.step("at the end", effect).input(&large()).await?; // only its hash is recorded
            Ok(failures)
        }
        let (onward, effects) = engine(site, |builder| builder.workflow("w", code)).await;
        let run = onward.start::<Vec<Failure>, _>("w", &()).await.unwrap();
        let failures = run.result().await.unwrap();
        let what = [
            "the state `size`",
            "signal `hello` to run somebody",
            "the input of task `t`",
            "the input of child `c`",
            "what an approval shows",
            "what is emitted",
            "the input of the next generation",
        ];
        assert_eq!(failures.len(), what.len(), "{failures:?}");
        failures.iter().zip(what).for_each(|(failure, what)| check(site, failure, what));
        assert_eq!(effects.count(), 8, "every step ran once");
        assert_eq!(onward.list_approvals().await.unwrap(), [], "there is no approval");
        for nothing in ["task_scheduled", "child_started", "signal_sent", "run_continued", "run_paused"] {
            assert_eq!(count(&run, nothing).await, 0, "{nothing}");
        }
    }

    async fn a_run_whose_output_is_too_large_fails_and_undoes_what_it_did(site) {
        async fn code(ctx: Ctx, (): ()) -> Result<String> {
            let effects = ctx.dep::<Effects>();
            ctx.on_failure("undo", move || {
                effects.happen();
                async { Ok::<_, Failure>(()) }
            });
            Ok(large())
        }
        let (onward, effects) = engine(site, |builder| builder.workflow("w", code)).await;
        let run = onward.start::<String, _>("w", &()).await.unwrap();
        let error = run.result().await.unwrap_err();
        check(site, error.failure().unwrap(), "the output");
        assert_eq!(effects.count(), 1);
    }

    async fn an_answer_that_is_too_large_fails_for_the_caller(site) {
        async fn code(ctx: Ctx, (): ()) -> Result<()> {
            ctx.query("size", |()| Ok(large()));
            ctx.update("grow", |()| Ok(large()));
            ctx.signal("end").recv().await
        }
        let (onward, _) = engine(site, |builder| builder.workflow("w", code)).await;
        let run = onward.start::<(), _>("w", &()).await.unwrap();
        check(site, run.query::<String>("size", &()).await.unwrap_err().failure().unwrap(), "the answer");
        check(site, run.update::<String>("grow", &()).await.unwrap_err().failure().unwrap(), "the answer");
        run.signal("end", &()).await.unwrap();
        run.result().await.unwrap();
    }
}

/// The worker does not know the limit, because a server accepts less than it announced, or because a commit is too large for one
/// message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_the_store_refuses_is_how_the_step_failed() {
    async fn code(ctx: Ctx, (): ()) -> Result<(u32, Failure)> {
        let effects = ctx.dep::<Effects>();
        let (small, large) = onward::join!(
            ctx.step("small", async || Ok::<_, Failure>(7)),
            ctx.step("large", async || {
                effects.happen();
                Ok::<_, Failure>("x".repeat(2_000))
            }),
        );
        Ok((small?, large.map(drop).expect_err("it is too large")))
    }
    let (site, effects) = (Site::memory(), Effects::default());
    let builder = Onward::with_store(Arc::new(TightStore::new(site.clock.clone(), 1_000)), site.clock.clone());
    let onward = builder.dep(effects.clone()).workflow("w", code).start().await.unwrap();
    let (small, failure) = onward.start::<(u32, Failure), _>("w", &()).await.unwrap().result().await.unwrap();
    assert_eq!((small, effects.count()), (7, 1));
    assert_eq!((failure.code.as_str(), failure.retryable), ("payload_too_large", false));
    let expected = "the result of step `large` cannot be recorded: a payload of 2002 bytes is over the limit of 1000";
    assert!(failure.message.starts_with(expected), "{failure}");
}

/// A result that the store refuses for good is lost; an error with the code of the refusal is logged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_the_store_refuses_is_logged_with_its_code() {
    let (site, warnings) = (Site::memory(), Warnings::collect());
    let builder = Onward::with_store(Arc::new(TightStore::without_reports(site.clock.clone())), site.clock.clone());
    let code = async |ctx: Ctx, (): ()| ctx.task::<u32>("t", &()).await;
    let builder = builder.workflow("w", code).task("t", async |(): ()| Ok::<_, Failure>(1));
    let onward = builder.start().await.unwrap();
    onward.start::<u32, _>("w", &()).id("report-refused").await.unwrap();
    let logged = eventually("the refusal is logged", async || warnings.about("report-refused").into_iter().next()).await;
    let [code, kind] = ["code", "kind"].map(|field| logged[field].as_str());
    assert_eq!((code, kind), ("run_not_found", "t"), "{logged:?}");
}

/// Anything but a result was not executed: the run pauses with the reason, and a build with smaller payloads finishes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anything_else_that_the_store_refuses_pauses_the_run() {
    async fn code(ctx: Ctx, size: usize) -> Result<()> {
        let effects = ctx.dep::<Effects>();
        let effect = async || {
            effects.happen();
            Ok::<_, Failure>(())
        };
        ctx.step("before", effect).await?;
        ctx.state().set("text", &"x".repeat(size))
    }
    let (site, effects) = (Site::memory(), Effects::default());
    let builder = Onward::with_store(Arc::new(TightStore::new(site.clock.clone(), 1_000)), site.clock.clone());
    let onward = builder.dep(effects.clone()).workflow("w", code).start().await.unwrap();
    let run = onward.start::<(), _>("w", &2_000usize).await.unwrap();
    for resumed in 0..3 {
        let pause = paused(&run).await;
        assert!(
            pause.message.contains("over the limit of 1000") && pause.message.contains("pass a reference"),
            "{}",
            pause.message
        );
        assert_eq!((effects.count(), count(&run, "run_paused").await), (1, resumed + 1));
        run.resume().await.unwrap();
    }
}

/// The call is billed once, and the failure names the setting to change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_over_the_payload_limit_fails_without_a_second_call() {
    use onward::agent::{Agent, AgentOutcome, Key, ModelLimits, Provider};
    use onward_llm_scripted::{ScriptedModel, ScriptedReply};
    let (site, model) = (Site::memory(), ScriptedModel::start().await.unwrap());
    let provider = Provider::openai(&format!("{}/v1", model.url()), Some(Key::new("sk"))).unwrap();
    // The stream of a large answer is several times as long as its text.
    let provider = provider.with_limits(ModelLimits { answer_bytes_max: usize::MAX, ..ModelLimits::default() });
    model.next(ScriptedReply::text(&large()));
    let builder = site.builder().await;
    let onward = builder.register(Agent::new("a").model("m")).model("m", &provider).start().await.unwrap();
    let run = onward.start::<AgentOutcome, _>("a", "hello").await.unwrap();
    let error = run.result().await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.code.as_str(), failure.retryable), ("model_answer_too_large", false), "{failure}");
    assert!(failure.message.contains("the answer of model `m`") && failure.message.contains("lower `max_tokens`"), "{failure}");
    assert_eq!(model.request_count(), 1);
}
