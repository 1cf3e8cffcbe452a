//! The log of a run, by the calls of its flow.
//!
//! The calls of a run are numbered in the order in which its code made them. The log has them by their call ids, whose ordinals also
//! count writes of the progress and the timers of waits for signals; what is left are the calls of the flow.

use std::collections::BTreeMap;

use onward::Payload;
use onward_core::task::idempotency_key;
use onward_core::{CallId, Event, Index, Record, RunHead, Timestamp};
use onward_flow::machine::{Call, CallRequest, FlowFailure};
use serde_json::Value;

use super::calls::{check_call, check_failure};
use super::process::Given;

/// A log, by the calls of the flow.
pub struct RunLog<'l> {
    pub head: &'l RunHead,
    log: &'l [Record],
    /// The call ids of the calls, by number.
    ids: Vec<CallId>,
    /// The events of commits, by call.
    of_call: BTreeMap<&'l CallId, Vec<(&'l Event, Timestamp)>>,
}

impl<'l> RunLog<'l> {
    pub fn of(head: &'l RunHead, log: &'l [Record]) -> RunLog<'l> {
        let mut of_call: BTreeMap<&CallId, Vec<(&Event, Timestamp)>> = BTreeMap::new();
        for record in log {
            for event in &record.events {
                event.call_id().iter().for_each(|call_id| of_call.entry(call_id).or_default().push((event, record.at)));
            }
        }
        let first = |ordinal: u32| of_call.get(&CallId::root(ordinal)).map(|events| events[0].0);
        let deadline = |ordinal: u32| match first(ordinal.checked_sub(1)?)? {
            Event::SignalAwaited(awaited) => awaited.deadline,
            _ => None,
        };
        let is_of_flow = |ordinal: &u32| match first(*ordinal) {
            Some(Event::StateSet(_)) => false,
            Some(Event::TimerStarted(timer)) => deadline(*ordinal) != Some(timer.due_at),
            _ => true,
        };
        let end = of_call.keys().map(|call_id| call_id.ordinal() + 1).max().unwrap_or(0);
        let ids = (0..end).filter(is_of_flow).map(CallId::root).collect();
        RunLog { head, log, ids, of_call }
    }

    fn events(&self) -> impl Iterator<Item = (Index, &'l Event)> {
        self.log.iter().flat_map(Record::indexed)
    }

    /// Returns where the run was requested to cancel.
    pub fn canceled_at(&self) -> Option<Index> {
        self.events().find(|(_, event)| matches!(event, Event::CancelRequested(_))).map(|(index, _)| index)
    }

    fn of_number(&self, number: usize) -> &[(&'l Event, Timestamp)] {
        self.ids.get(number).and_then(|call_id| self.of_call.get(call_id)).map_or(&[], Vec::as_slice)
    }

    /// Returns the answer that the call of this number had when it was made: a signal that was there.
    pub fn answer_at_once(&self, number: usize) -> Option<Result<Value, FlowFailure>> {
        let (Event::SignalConsumed(consumed), _) = self.of_number(number).first()? else { return None };
        let received = self.events().find_map(|(index, event)| match event {
            Event::SignalReceived(signal) if index == consumed.index => Some(&signal.payload),
            _ => None,
        });
        Some(Ok(received.expect("a consumed signal was received").read().unwrap()))
    }

    /// Checks the answers that the code got: those of the log, in its order. Returns their indices.
    pub fn check_given(&self, given: &[Given]) -> Vec<Index> {
        let (mut before, mut indices) = (Index(0), Vec::new());
        for (number, result) in given {
            let call_id = self.ids.get(*number as usize).unwrap_or_else(|| panic!("the log has no call {number}"));
            let is_signal = matches!(self.of_number(*number as usize).first(), Some((Event::SignalAwaited(_), _)));
            let limit = is_signal.then(|| CallId::root(call_id.ordinal() + 1));
            let answers = self.events().filter(|(_, event)| answers(event, call_id, limit.as_ref()));
            if matches!(result, Err(failure) if failure.is_canceled()) {
                indices.push(before);
                continue;
            }
            let (index, event) = answers.last().unwrap_or_else(|| panic!("call {number} at {call_id} has no answer in the log"));
            let index = if let Event::SignalConsumed(consumed) = event { consumed.index } else { index };
            assert!(before <= index, "call {number} is answered after a later event: {index}, before it {before}");
            before = index;
            indices.push(index);
            self.check_answer(event, result);
        }
        indices
    }

    fn check_answer(&self, event: &Event, result: &onward::Result<Payload>) {
        let value = |result: &onward::Result<Payload>| result.as_ref().ok().map(|payload| payload.read::<Value>().unwrap());
        match event {
            Event::TaskFailed(failed) => assert_eq!(result.as_ref().unwrap_err().code, failed.failure.code),
            Event::ChildFailed(failed) => assert_eq!(result.as_ref().unwrap_err().code, failed.failure.code),
            Event::StepFailed(failed) => assert_eq!(result.as_ref().unwrap_err().code, failed.failure.code),
            Event::StepCompleted(completed) => assert_eq!(value(result), Some(completed.output.read().unwrap())),
            Event::TaskCompleted(completed) => self.check_output(&completed.output, value(result)),
            Event::ChildCompleted(completed) => self.check_output(&completed.output, value(result)),
            Event::MemoAnswered(answered) => {
                self.check_output(&answered.hit.as_ref().expect("it is an answer").output, value(result));
            }
            Event::SignalConsumed(consumed) => {
                let received = self.events().find(|(index, _)| *index == consumed.index);
                let Some((_, Event::SignalReceived(signal))) = received else { panic!("a signal is consumed: {received:?}") };
                assert_eq!(value(result), Some(signal.payload.read().unwrap()));
            }
            _ => {}
        }
    }

    /// Compares an output, or its text if it is of a model or an agent.
    fn check_output(&self, output: &Payload, value: Option<Value>) {
        let output: Value = output.read().unwrap();
        let text = output.pointer("/blocks/0/text").or(output.get("text").filter(|text| text.is_string())).cloned();
        assert!(value == Some(output.clone()) || (text.is_some() && value == text), "{value:?} is not {output:?}");
    }

    /// Compares the recorded calls with those of the reference.
    pub fn check_calls(&self, calls: &[Call]) {
        for (number, call_id) in self.ids.iter().enumerate() {
            let call = calls.get(number).unwrap_or_else(|| panic!("the reference does not make the call at {call_id}"));
            let recorded = self.of_number(number);
            if recorded.is_empty() {
                let is_action = matches!(call.request, CallRequest::Action { .. });
                assert!(is_action || self.canceled_at().is_some(), "{call:?} is not recorded at {call_id}");
            }
            for (event, at) in recorded {
                check_call(event, *at, call);
            }
        }
        let is_open_action = |call: &Call| matches!(call.request, CallRequest::Action { .. });
        let missing = calls.get(self.ids.len()..).unwrap_or_default();
        assert!(missing.iter().all(is_open_action), "calls of the reference are not recorded: {missing:?}");
    }

    pub fn check_end(&self, end: &Option<Result<Value, FlowFailure>>, is_given_up: bool) {
        let Some((_, last)) = self.events().last() else { panic!("a log has events") };
        match (last, end) {
            (Event::RunCompleted(completed), Some(Ok(output))) => {
                assert_eq!(&completed.output.read::<Value>().unwrap(), output, "the result");
            }
            (Event::RunFailed(failed), Some(Err(failure))) => check_failure(&failed.failure, failure),
            (Event::RunCanceled(canceled), Some(Err(failure))) => check_failure(&canceled.failure, failure),
            (_, None) => assert!(is_given_up && !self.head.status.is_closed(), "the reference does not end"),
            (last, end) => panic!("the run ends with {last:?}, the reference with {end:?}"),
        }
    }

    /// Returns the idempotency keys of tasks and actions, with the number of their calls.
    pub fn keys(&self, calls: &[Call]) -> BTreeMap<String, usize> {
        let is_effect = |call: &Call| {
            matches!(call.request, CallRequest::Task { .. } | CallRequest::Action { .. } | CallRequest::Model { .. })
        };
        let effects = calls.iter().enumerate().filter(|(_, call)| is_effect(call));
        let next = self.ids.last().map_or(0, |call_id| call_id.ordinal() + 1);
        let id = |number: usize| self.ids.get(number).cloned().unwrap_or_else(|| CallId::root(next));
        effects.map(|(number, _)| (idempotency_key(&self.head.key, 0, &id(number)), number)).collect()
    }
}

/// Returns whether the event answers the call, or fires the timer that limits it.
fn answers(event: &Event, call_id: &CallId, limit: Option<&CallId>) -> bool {
    match event {
        Event::TaskCompleted(event) => event.call_id == *call_id,
        Event::TaskFailed(event) => event.call_id == *call_id,
        Event::ChildCompleted(event) => event.call_id == *call_id,
        Event::ChildFailed(event) => event.call_id == *call_id,
        Event::ApprovalDecided(event) => event.call_id == *call_id,
        Event::TimerFired(event) => event.call_id == *call_id || Some(&event.call_id) == limit,
        Event::MemoAnswered(event) => event.call_id == *call_id && event.hit.is_some(),
        Event::StepCompleted(event) => event.call_id == *call_id,
        Event::StepFailed(event) => event.call_id == *call_id && event.retry_at.is_none(),
        Event::SignalConsumed(event) => event.call_id == *call_id,
        _ => false,
    }
}
