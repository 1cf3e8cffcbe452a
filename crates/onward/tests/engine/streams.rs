//! Output of tasks while they run, and its readers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::agent::{AgentCtx, Turn};
use onward::prelude::*;
use onward::stream::{StreamContent, StreamFrame};
use onward::{Builder, RunHandle, RunStream, TaskCtx};
use serde_json::{Value, json};

use crate::site::{Gate, eventually, everywhere};

const MESSAGE: Signal<String> = Signal::new("message");

/// Takes a turn for each message; each answer is one task.
async fn chat(ctx: AgentCtx, turns: u32) -> Result<u32> {
    ctx.turns(1u32, |turn| {
        let ctx = ctx.clone();
        async move {
            for message in ctx.signal(&MESSAGE).drain()? {
                ctx.append("user", &message).await?;
            }
            let answer: String = ctx.task("model", &turn).pure().retry(RetryPolicy::attempts(3).delay(millis(1))).await?;
            ctx.append("assistant", &answer).await?;
            if turn == turns { Ok(Turn::Done(turn)) } else { Ok(Turn::wait_for(turn + 1, &MESSAGE)) }
        }
    })
    .await
}

/// Requests an approval, unless the code has changed.
async fn fickle(ctx: AgentCtx, (): ()) -> Result<String> {
    ctx.turns((), |()| {
        let ctx = ctx.clone();
        async move {
            ctx.signal("begin").recv::<()>().await?;
            if ctx.dep::<Arc<AtomicU32>>().load(Ordering::SeqCst) > 0 {
                ctx.append("assistant", "never mind").await?;
                ctx.signal(&MESSAGE).recv().await?;
                return Ok(Turn::Done("other".to_owned()));
            }
            ctx.append("assistant", "may I?").await?;
            let decision = ctx.approval("may", "May I?").await?;
            Ok(Turn::Done(decision.approved.to_string()))
        }
    })
    .await
}

fn millis(millis: u64) -> std::time::Duration {
    std::time::Duration::from_millis(millis)
}

fn emit_text(ctx: &TaskCtx, text: &str) {
    ctx.stream(&json!({"type": "text", "text": text}));
}

/// Emits its answer word by word.
async fn model(ctx: TaskCtx, turn: u32) -> Result<String> {
    let words = [format!("answer {turn} "), "word ".to_owned(), "by ".to_owned(), "word".to_owned()];
    words.iter().for_each(|word| emit_text(&ctx, word));
    Ok(words.concat())
}

/// A typical reader: the output of each task, and what has become final.
#[derive(Default)]
struct Screen {
    drafts: BTreeMap<String, String>,
    /// All texts at the end of their tasks.
    finished: Vec<String>,
    roles: Vec<String>,
    seen: Vec<&'static str>,
}

impl Screen {
    fn show(&mut self, frame: &StreamFrame) {
        match &frame.content {
            StreamContent::TaskFrame(task_frame) => {
                let value: Value = task_frame.frame.read().unwrap();
                if value["type"] == "text" {
                    let draft = self.drafts.entry(task_frame.task.to_string()).or_default();
                    draft.push_str(value["text"].as_str().unwrap());
                }
                self.seen.push("spoken");
            }
            StreamContent::AttemptReset(reset) => {
                self.drafts.remove(&reset.task.to_string());
                self.seen.push("attempt_reset");
            }
            StreamContent::AttemptFailed(_) => self.seen.push("attempt_failed"),
            StreamContent::TaskEnd(end) => {
                self.finished.extend(self.drafts.remove(&end.task.to_string()));
                self.seen.push("task_end");
            }
            StreamContent::Entry(entry) => {
                self.roles.push(entry.role.to_string());
                self.seen.push("entry");
            }
            StreamContent::BranchReset(_) => self.seen.push("branch_reset"),
            StreamContent::ApprovalRequested(_) => self.seen.push("approval_requested"),
            StreamContent::Paused(_) => self.seen.push("paused"),
            StreamContent::Resumed(_) => self.seen.push("resumed"),
            StreamContent::End(_) => self.seen.push("end"),
            StreamContent::StreamReset(_) => {
                self.drafts.clear();
                self.seen.push("stream_reset");
            }
        }
    }

    async fn watch(&mut self, stream: &mut RunStream) {
        while let Some(frame) = stream.next().await.unwrap() {
            self.show(&frame);
        }
    }

    async fn watch_until(&mut self, stream: &mut RunStream, wanted: &str) {
        while self.seen.last() != Some(&wanted) {
            let frame = stream.next().await.unwrap().expect("the run goes on");
            self.show(&frame);
        }
    }
}

async fn started(builder: Builder, turns: u32) -> (Onward, RunHandle<u32>) {
    let onward = builder.agent("chat", chat).start().await.unwrap();
    let run = onward.start::<u32, _>("chat", &turns).id("c").await.unwrap();
    (onward, run)
}

everywhere! {
    async fn a_reader_gets_every_answer_word_by_word_and_its_outcome(site) {
        let gate = Gate::shut();
        let gated = { let gate = gate.clone(); move |ctx: TaskCtx, turn: u32| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                model(ctx, turn).await.map_err(|failure| failure.message)
            }
        }};
        let (_onward, run) = started(site.builder().await.task("model", gated), 2).await;
        let (mut screen, mut stream) = (Screen::default(), run.stream(None));
        screen.watch_until(&mut stream, "stream_reset").await;
        gate.open(); // a later reader may find that the first answer is final
        screen.watch_until(&mut stream, "entry").await;
        // A reader that reconnects with an offset misses nothing and gets nothing twice.
        let offset = stream.offset().unwrap().to_owned();
        drop(stream);
        run.signal(&MESSAGE, &"and now?".to_owned()).await.unwrap();
        run.result().await.unwrap();
        screen.watch(&mut run.stream(Some(offset))).await;
        assert_eq!(screen.finished, ["answer 1 word by word", "answer 2 word by word"], "{:?}", screen.seen);
        assert_eq!(screen.roles, ["assistant", "user", "assistant"]);
        assert_eq!(screen.seen.iter().filter(|seen| **seen == "stream_reset").count(), 1, "{:?}", screen.seen);
        assert_eq!(screen.seen.last(), Some(&"end"));
    }

    async fn many_readers_get_the_same(site) {
        let gate = Gate::shut();
        let model = { let gate = gate.clone(); move |ctx: TaskCtx, turn: u32| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                for n in 0..500 {
                    emit_text(&ctx, &format!("{n} "));
                    if n % 50 == 0 {
                        tokio::time::sleep(millis(1)).await;
                    }
                }
                Ok::<_, Failure>(turn.to_string())
            }
        }};
        let (_onward, run) = started(site.builder().await.task("model", model), 1).await;
        let run = Arc::new(run);
        let (mut readers, begun) = (Vec::new(), Arc::new(AtomicU32::new(0)));
        for slow in [0, 0, 0, 0, 3, 10] {
            let (mut stream, begun) = (run.stream(None), begun.clone());
            readers.push(tokio::spawn(async move {
                let (mut screen, mut is_first) = (Screen::default(), true);
                while let Some(frame) = stream.next().await.unwrap() {
                    screen.show(&frame);
                    begun.fetch_add(u32::from(std::mem::take(&mut is_first)), Ordering::SeqCst);
                    if slow > 0 {
                        tokio::time::sleep(millis(slow)).await;
                    }
                }
                screen
            }));
        }
        eventually("all of them read", async || (begun.load(Ordering::SeqCst) == 6).then_some(())).await;
        gate.open();
        let whole: String = (0..500).map(|n| format!("{n} ")).collect();
        for reader in readers {
            let screen = reader.await.unwrap();
            assert_eq!(screen.finished, [whole.as_str()], "{:?}", screen.seen);
        }
    }

    async fn another_attempt_resets_the_text_of_the_one_before(site) {
        let tries = Arc::new(AtomicU32::new(0));
        let model = move |ctx: TaskCtx, _: u32| {
            let tries = tries.clone();
            async move {
                emit_text(&ctx, "half an ");
                if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                    return Err(Failure::retryable("the line is dead").with_code("line_dead"));
                }
                emit_text(&ctx, "answer");
                Ok("half an answer".to_owned())
            }
        };
        let (onward, run) = started(site.builder().await.task("model", model), 1).await;
        let (mut screen, mut stream) = (Screen::default(), run.stream(None));
        let mut failed = None;
        loop {
            // The second attempt begins when it is due.
            let frame = tokio::select! {
                frame = stream.next() => frame.unwrap(),
                () = tokio::time::sleep(millis(20)) => { site.pass(&onward, millis(10)).await; continue }
            };
            let Some(frame) = frame else { break };
            if let StreamContent::AttemptFailed(attempt) = &frame.content {
                failed = Some(attempt.clone());
            }
            screen.show(&frame);
        }
        assert_eq!(screen.finished, ["half an answer"], "{:?}", screen.seen);
        let failed = failed.expect("the failure is reported");
        assert_eq!((failed.attempt, failed.attempts_max, failed.next_delay_ms), (1, 3, Some(1)));
        assert_eq!((failed.failure.code.as_str(), failed.failure.message.as_str()), ("line_dead", "the line is dead"));
        let reset = screen.seen.iter().position(|seen| *seen == "attempt_reset").expect("it is taken back");
        assert!(screen.seen[reset..].contains(&"spoken"));
    }

    async fn pauses_and_questions_are_streamed_and_what_code_abandons_is_reset(site) {
        let is_other = Arc::new(AtomicU32::new(0));
        let engine = async || {
            let builder = site.builder().await.agent("fickle", fickle).task("model", model).dep(is_other.clone());
            builder.start().await.unwrap()
        };
        let onward = engine().await;
        let run = onward.start::<String, _>("fickle", &()).id("c").await.unwrap();
        let (mut screen, mut stream) = (Screen::default(), run.stream(None));
        screen.watch_until(&mut stream, "stream_reset").await;
        run.signal("begin", &()).await.unwrap();
        screen.watch_until(&mut stream, "approval_requested").await;
        run.pause("a break").await.unwrap();
        screen.watch_until(&mut stream, "paused").await;
        // In another process the code diverges from the log. A process that has the run in memory would not replay it.
        drop((run, stream));
        onward.shutdown().await;
        is_other.store(1, Ordering::SeqCst);
        let onward = engine().await;
        let run = onward.run::<String>("c").unwrap();
        let (mut screen, mut stream) = (Screen::default(), run.stream(None));
        screen.watch_until(&mut stream, "stream_reset").await;
        run.resume().await.unwrap();
        screen.watch_until(&mut stream, "branch_reset").await;
        assert!(screen.seen.contains(&"resumed"), "{:?}", screen.seen);
        run.signal(&MESSAGE, &"go on".to_owned()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "other");
        screen.watch(&mut stream).await;
        assert_eq!((screen.roles.last().map(String::as_str), screen.seen.last()), (Some("assistant"), Some(&"end")));
    }

    async fn ten_thousand_words_cost_few_messages(site) {
        let model = move |ctx: TaskCtx, _: u32| async move {
            for n in 0..10_000 {
                emit_text(&ctx, &format!("{n} "));
                if n % 100 == 0 {
                    tokio::time::sleep(millis(2)).await;
                }
            }
            Ok::<_, Failure>(String::new())
        };
        let (_onward, run) = started(site.builder().await.task("model", model), 1).await;
        let (mut screen, mut stream) = (Screen::default(), run.stream(None));
        screen.watch(&mut stream).await;
        let whole: String = (0..10_000).map(|n| format!("{n} ")).collect();
        assert_eq!(screen.finished.concat().len(), whole.len());
        assert!(screen.finished.concat() == whole, "in order, once");
        let messages = screen.seen.iter().filter(|seen| **seen == "spoken").count();
        assert!(messages < 200, "10,000 words came in {messages} frames");
    }

    async fn a_closed_run_ends_its_stream_and_a_missing_one_is_not_read(site) {
        let (onward, run) = started(site.builder().await.task("model", model), 1).await;
        run.result().await.unwrap();
        let (mut screen, mut stream) = (Screen::default(), run.stream(Some("0000-7".to_owned())));
        screen.watch(&mut stream).await;
        assert_eq!((screen.seen.first(), screen.seen.last()), (Some(&"stream_reset"), Some(&"end")));
        let error = onward.run::<u32>("nobody").unwrap().stream(None).next().await.unwrap_err();
        assert_eq!(error.code(), "run_not_found");
    }
}
