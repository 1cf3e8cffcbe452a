//! The test kit: scripts in virtual time, and replays of recorded logs, with the code of the shell.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use onward::testing::{Replay, Script, ScriptOutcome};
use onward::{Failure, Log, Record};
use onward_core::ErrorCode;
use onward_store::sync::lock;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{BridgeError, FailureText, failure_text, text_of};
use crate::host::{Host, KindShell};
use crate::verbs::{arguments, null, present, read};

type Raw = Box<RawValue>;

/// The code of a kind.
#[derive(Clone)]
pub(crate) struct KitKind {
    pub shell: Arc<KindShell>,
    pub is_agent: bool,
}

arguments! {
    ScriptArguments {
        kind: String,
        #[serde(default = "null")]
        input: Raw,
        id: Option<String>,
        #[serde(default)]
        steps: BTreeMap<String, Vec<Scripted>>,
        #[serde(default)]
        tasks: BTreeMap<String, Raw>,
        #[serde(default)]
        children: BTreeMap<String, Raw>,
        #[serde(default)]
        approvals: BTreeMap<String, Vec<Decided>>,
        #[serde(default)]
        promises: BTreeMap<String, Scripted>,
        #[serde(default)]
        signals: Vec<Timed>,
        #[serde(default)]
        updates: Vec<Timed>,
        cancel: Option<Canceled>,
        generations: Option<u32>,
        #[serde(default)]
        check: Check,
    }
    Decided {
        #[serde(default = "yes")]
        approved: bool,
        #[serde(default)]
        after_ms: u64,
        feedback: Option<String>,
        #[serde(default, deserialize_with = "present")]
        answer: Option<Raw>,
    }
    Timed { #[serde(default)] after_ms: u64, name: String, #[serde(default = "null")] value: Raw }
    Canceled { #[serde(default)] after_ms: u64, #[serde(default)] reason: String }
    ReplayArguments {
        kind: String,
        run: String,
        records: Vec<Record>,
        #[serde(default)]
        prelude: Vec<Record>,
        #[serde(default)]
        earlier: Vec<Vec<Record>>,
    }
}

fn yes() -> bool {
    true
}

/// A result: a value, or a failure.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scripted {
    #[serde(default, deserialize_with = "present")]
    value: Option<Raw>,
    failure: Option<FailureText>,
}

impl Scripted {
    fn result(self) -> Result<Raw, Failure> {
        match self.failure {
            Some(failure) => Err(failure.into_failure()),
            None => Ok(self.value.unwrap_or_else(null)),
        }
    }
}

/// What is done with the script.
#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Check {
    #[default]
    Run,
    CrashEverywhere,
    Deterministic,
    Schedules(u64),
    Schedule(u64),
}

#[derive(Serialize)]
struct OutcomeText {
    /// Of the run; absent if it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Raw>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Raw>,
    is_open: bool,
    is_canceled: bool,
    waits_for: Vec<String>,
    elapsed_ms: u64,
    steps_run: Vec<String>,
    steps_scripted: Vec<String>,
    updates: Vec<Raw>,
    /// One log for each generation.
    logs: Vec<Vec<Record>>,
}

fn raw(text: String) -> Option<Raw> {
    RawValue::from_string(text).ok()
}

/// Executes a request of the test kit. Blocks the thread while the shell plays; a panic of the kit is its report.
pub(crate) fn request(host: &Arc<Host>, verb: &str, text: &str) -> Result<String, BridgeError> {
    let report = catch_unwind(AssertUnwindSafe(|| match verb {
        "script" => play(host, read(verb, text)?),
        _ => replay(host, read(verb, text)?),
    }));
    report.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(BridgeError::new(ErrorCode::CheckFailed, text.unwrap_or_default()))
    })
}

fn kind_of(host: &Host, kind: &str) -> Result<KitKind, BridgeError> {
    let known = lock(&host.kinds).get(kind).cloned();
    known.ok_or_else(|| onward::Error::UnknownKind { kind: kind.to_owned(), version: None }.into())
}

fn play(host: &Arc<Host>, arguments: ScriptArguments) -> Result<String, BridgeError> {
    let updates = arguments.updates.len();
    let (script, check) = script(host, arguments)?;
    let outcome = match check {
        Check::Run => script.run(),
        Check::Schedule(seed) => script.schedule(seed),
        Check::CrashEverywhere => {
            script.crash_everywhere();
            script.run()
        }
        Check::Deterministic => {
            script.assert_deterministic();
            script.run()
        }
        Check::Schedules(count) => {
            script.schedules(count);
            script.run()
        }
    };
    describe(&outcome, updates)
}

fn script(host: &Arc<Host>, arguments: ScriptArguments) -> Result<(Script, Check), BridgeError> {
    let KitKind { shell, is_agent } = kind_of(host, &arguments.kind)?;
    let ms = Duration::from_millis;
    let mut script = Script::foreign(shell, is_agent, &arguments.input);
    script = arguments.id.iter().fold(script, |script, id| script.id(id));
    for (step, results) in arguments.steps {
        script = results.into_iter().fold(script, |script, result| match result.result() {
            Ok(value) => script.step(&step, &value),
            Err(failure) => script.step_fails(&step, failure),
        });
    }
    for (kind, answers) in arguments.tasks {
        script = script.task_with(&kind.clone(), responder(host, kind, &answers)?);
    }
    for (kind, answers) in arguments.children {
        let respond = responder(host, kind.clone(), &answers)?;
        script = script.child(&kind, move |input: Raw| respond(input, 1));
    }
    for (approval, decisions) in arguments.approvals {
        script = decisions.into_iter().fold(script, |script, Decided { approved, after_ms, feedback, answer }| {
            match (approved, answer) {
                (true, None) => script.approve_after(ms(after_ms), &approval),
                (true, Some(answer)) => script.approve_with_after(ms(after_ms), &approval, &answer),
                (false, _) => script.reject_after(ms(after_ms), &approval, &feedback.unwrap_or_default()),
            }
        });
    }
    for (promise, result) in arguments.promises {
        script = match result.result() {
            Ok(value) => script.resolve(&promise, &value),
            Err(failure) => script.reject_promise(&promise, failure),
        };
    }
    let signals = arguments.signals.into_iter();
    script = signals.fold(script, |script, Timed { after_ms, name, value }| script.signal(ms(after_ms), &name, &value));
    let updates = arguments.updates.into_iter();
    script = updates.fold(script, |script, Timed { after_ms, name, value }| script.update(ms(after_ms), &name, &value));
    let cancel = arguments.cancel.into_iter();
    script = cancel.fold(script, |script, Canceled { after_ms, reason }| script.cancel(ms(after_ms), &reason));
    script = arguments.generations.into_iter().fold(script, Script::generations);
    Ok((script, arguments.check))
}

/// Returns what answers the tasks or children of a kind: results by attempt, of which the last repeats, or with `"function"` the
/// shell's function.
fn responder(
    host: &Arc<Host>,
    kind: String,
    answers: &RawValue,
) -> Result<impl Fn(Raw, u32) -> Result<Raw, Failure> + Send + Sync + use<>, BridgeError> {
    let host = host.clone();
    let results: Option<Vec<_>> = match answers.get() {
        "\"function\"" => None,
        text => Some(read::<Vec<Scripted>>("script", text)?.into_iter().map(Scripted::result).collect()),
    };
    Ok(move |input, attempt: u32| match &results {
        None => host.clone().run_scripted(&kind, input, attempt),
        Some(results) => {
            let result = results.get(attempt as usize - 1).or(results.last()).cloned();
            result.unwrap_or_else(|| Ok(null()))
        }
    })
}

fn describe(outcome: &ScriptOutcome, updates: usize) -> Result<String, BridgeError> {
    let answer = |nth: usize| match outcome.update::<Raw>(nth) {
        Ok(value) => raw(format!("{{\"value\":{}}}", value.get())),
        Err(failure) => raw(format!("{{\"failure\":{}}}", failure_text(&failure))),
    };
    let text = OutcomeText {
        value: outcome.result().and_then(|result| raw(text_of(result.as_ref().ok()?))),
        failure: outcome.result().and_then(|result| raw(failure_text(result.as_ref().err()?))),
        is_open: outcome.is_open(),
        is_canceled: outcome.is_canceled(),
        waits_for: outcome.waits_for().to_vec(),
        elapsed_ms: outcome.elapsed().as_millis() as u64,
        steps_run: outcome.steps_run().to_vec(),
        steps_scripted: outcome.steps_scripted().to_vec(),
        updates: (0..updates).filter_map(answer).collect(),
        logs: outcome.logs().iter().map(|log| log.records().to_vec()).collect(),
    };
    serde_json::to_string(&text).map_err(|error| BridgeError::arguments("the outcome", &error))
}

fn replay(host: &Host, arguments: ReplayArguments) -> Result<String, BridgeError> {
    let ReplayArguments { kind, run, records, prelude, earlier } = arguments;
    let KitKind { shell, is_agent } = kind_of(host, &kind)?;
    let load = |records: Vec<Record>| Log::load(records).map_err(|error| BridgeError::arguments("the log", &error));
    let (log, prelude) = (load(records)?, (!prelude.is_empty()).then(|| load(prelude)).transpose()?);
    let earlier = earlier.into_iter().map(load).collect::<Result<Vec<_>, _>>()?;
    let replay = Replay::new(&run, &log).earlier(&earlier);
    let replay = prelude.iter().fold(replay, Replay::prelude);
    match replay.against_foreign(shell, is_agent) {
        Ok(()) => Ok("null".to_owned()),
        Err(report) => {
            let report = serde_json::to_string(&report);
            report.map_err(|error| BridgeError::arguments("the report", &error))
        }
    }
}
