//! The arguments of verbs. Unknown names are an error, so that a typing error is not ignored.

use onward::budget::Budget;
use onward::{Memo, MemoScope, OnParentClose, RetryPolicy};
use onward_core::{AttributeValue, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{BridgeError, FailureText};

type Raw = Box<RawValue>;

/// Reads arguments; empty text is an object without any.
pub(crate) fn read<T: DeserializeOwned>(verb: &str, text: &str) -> Result<T, BridgeError> {
    let text = if text.is_empty() { "{}" } else { text };
    serde_json::from_str(text).map_err(|error| BridgeError::arguments(&format!("the arguments of `{verb}`"), &error))
}

/// Declares arguments: fields without a default are required.
macro_rules! arguments {
    ($($name:ident { $($(#[$meta:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name { $($(#[$meta])* pub $field: $type,)* }
    )*};
}
pub(crate) use arguments;

arguments! {
    Version { change: String, min: u32, max: u32 }
    Mailbox { signal: Option<String>, pattern: Option<String> }
    SendSignal { run: String, name: String, value: Raw }
    StateSet { key: String, value: Raw }
    Key { key: String }
    Named { name: String }
    AttributeSet { name: String, value: AttributeText }
    Emit { name: String, value: Raw, #[serde(default)] internal: bool, meta: Option<Raw> }
    Spawn { kind: String, input: Raw, budget: Option<Budget> }
    RunMessage { run: String, value: Raw }
    Input { value: Raw }
    SetBudget { budget: Budget }
    UpdateAccept { update: String }
    UpdateAnswer {
        update: String,
        #[serde(default, deserialize_with = "present")]
        result: Option<Raw>,
        failure: Option<FailureText>,
    }
    Number { call: u32 }
    Misuse { message: String }
    MemoArguments {
        ttl_ms: u64,
        key: Option<String>,
        #[serde(default)]
        scope: MemoScope,
    }
    StepArguments {
        name: String,
        memo: Option<MemoArguments>,
        retry: Option<Retry>,
        timeout_ms: Option<u64>,
        #[serde(default, deserialize_with = "present")]
        input: Option<Raw>,
        #[serde(default)]
        record: bool,
        /// What middlewares record in place of the input.
        #[serde(default, deserialize_with = "present")]
        record_as: Option<Raw>,
    }
    TaskArguments {
        kind: String,
        #[serde(default = "null")]
        input: Raw,
        id: Option<String>,
        queue: Option<String>,
        key: Option<String>,
        priority: Option<i32>,
        retry: Option<Retry>,
        timeout_ms: Option<u64>,
        total_timeout_ms: Option<u64>,
        queued_timeout_ms: Option<u64>,
        heartbeat_ms: Option<u64>,
        idempotency_key: Option<String>,
        #[serde(default)]
        costs: bool,
        class: Option<String>,
        memo: Option<MemoArguments>,
        trace: Option<String>,
    }
    Sleep { ms: Option<u64>, until: Option<u64> }
    RecvArguments { signal: Option<String>, pattern: Option<String>, timeout_ms: Option<u64> }
    ApprovalArguments {
        name: String,
        title: String,
        description: Option<String>,
        #[serde(default, deserialize_with = "present")]
        show: Option<Raw>,
        #[serde(default)]
        deciders: Vec<String>,
        #[serde(default)]
        not_by_requester: bool,
        within_ms: Option<u64>,
        /// The JSON schema of the answer.
        answer_schema: Option<Raw>,
    }
    PromiseArguments { name: String, within_ms: Option<u64> }
    ChildArguments {
        kind: String,
        #[serde(default = "null")]
        input: Raw,
        id: Option<String>,
        version: Option<String>,
        on_parent_close: Option<OnParentClose>,
        budget: Option<Budget>,
        queue: Option<String>,
        key: Option<String>,
        priority: Option<i32>,
    }
    NextInput { input: Raw }
    Progress { #[serde(default = "null")] progress: Raw }
    Frame { frame: Raw }
}

/// Reads a field that is present, even if it is `null`.
pub(crate) fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Raw>, D::Error> {
    Raw::deserialize(deserializer).map(Some)
}

pub(crate) fn null() -> Raw {
    RawValue::NULL.to_owned()
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    pub run: String,
}

/// A number of attempts, or a policy.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Retry {
    Attempts(u32),
    Policy(RetryPolicy),
}

pub(crate) fn retry(retry: Retry) -> RetryPolicy {
    match retry {
        Retry::Attempts(attempts) => attempts.into(),
        Retry::Policy(policy) => policy,
    }
}

/// A value of an attribute as plain JSON.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum AttributeText {
    Text(String),
    Int(i64),
    Bool(bool),
    Time { time: u64 },
}

impl AttributeText {
    pub fn into_value(self) -> AttributeValue {
        match self {
            AttributeText::Text(text) => AttributeValue::Text(text),
            AttributeText::Int(number) => AttributeValue::Int(number),
            AttributeText::Bool(bool) => AttributeValue::Bool(bool),
            AttributeText::Time { time } => AttributeValue::Time(Timestamp(time)),
        }
    }
}

/// The mailbox of a name, or of all names like a pattern.
pub(crate) enum Which {
    Signal(String),
    Pattern(String),
}

impl Mailbox {
    pub fn which(self) -> Result<Which, BridgeError> {
        which(self.signal, self.pattern)
    }
}

pub(crate) fn which(signal: Option<String>, pattern: Option<String>) -> Result<Which, BridgeError> {
    match (signal, pattern) {
        (Some(name), None) => Ok(Which::Signal(name)),
        (None, Some(pattern)) => Ok(Which::Pattern(pattern)),
        _ => Err(BridgeError::arguments("the mailbox", &"give either `signal` or `pattern`")),
    }
}

#[derive(Serialize)]
pub(crate) struct Value {
    pub value: Raw,
}

#[derive(Serialize)]
pub(crate) struct NamedValue {
    pub name: String,
    pub value: Raw,
}

/// A signal that was drained.
#[derive(Serialize)]
pub(crate) struct Received {
    pub name: String,
    pub from: Option<String>,
    pub value: Raw,
}

#[derive(Serialize)]
pub(crate) struct KeptUpdate {
    pub update: String,
    pub input: Raw,
}

impl From<MemoArguments> for Memo {
    fn from(arguments: MemoArguments) -> Memo {
        let MemoArguments { ttl_ms, key, scope } = arguments;
        let memo = Memo::new(std::time::Duration::from_millis(ttl_ms)).scope(scope);
        key.into_iter().fold(memo, Memo::key)
    }
}
