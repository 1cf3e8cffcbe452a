//! Matching of calls by kind and content.

use std::collections::BTreeMap;

use crate::log::event::ApprovalRequested;
use crate::task::EffectClass;
use crate::{CallId, Event, Hash, Name};

/// The identity of a call: a hash of its kind and content.
pub(super) type Identity = Hash;

/// A call: its identity, and its number among those with that identity.
pub(super) type NumberedCall = (Identity, u32);

/// The path on which the code got here.
#[derive(Clone, Default)]
pub(super) struct LivePath {
    /// The number of calls of each identity.
    counts: BTreeMap<Identity, u32>,
    /// The last entry of the conversation.
    pub leaf: Option<Hash>,
}

impl LivePath {
    /// Counts the call of the event; returns its identity and number.
    pub fn pass(&mut self, event: &Event) -> Option<NumberedCall> {
        if let Event::EntryAppended(entry) = event
            && !entry.is_aside
        {
            self.leaf = Some(entry.id);
        }
        Some(self.count(identity(event, self.leaf)?))
    }

    pub fn uncount(&mut self, identity: Identity) {
        if let Some(count) = self.counts.get_mut(&identity) {
            *count = count.saturating_sub(1);
        }
    }

    pub fn count(&mut self, identity: Identity) -> NumberedCall {
        let count = self.counts.entry(identity).or_default();
        *count += 1;
        (identity, *count - 1)
    }
}

/// The time at which a call has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EffectOf {
    Never,
    /// When a person decides; the request itself has no effect.
    Decision,
    /// When an attempt begins.
    Attempt,
    /// With the commit.
    Always,
}

/// Returns the identity of the call, if it can be matched by content.
fn identity(event: &Event, leaf: Option<Hash>) -> Option<Identity> {
    let (tag, name, content): (&[u8], &str, Hash) = match event {
        Event::TaskScheduled(event) => (b"task", event.kind.as_str(), event.input_hash),
        Event::StepCompleted(event) => (b"step", event.name.as_str(), event.input_hash.unwrap_or_default()),
        Event::StepFailed(event) if event.retry_at.is_none() => {
            (b"step", event.name.as_str(), event.input_hash.unwrap_or_default())
        }
        Event::ChildStarted(event) if event.is_spawned => (b"spawn", event.kind.as_str(), event.input_hash),
        Event::ChildStarted(event) => (b"child", event.kind.as_str(), event.input_hash),
        Event::ChildAwaited(event) => (b"result", event.child.as_str(), Hash::default()),
        Event::SignalSent(event) => {
            let payload = Hash::of(&event.payload);
            (b"send", event.name.as_str(), Hash::of_parts(&[event.to.as_str().as_bytes(), &payload.0]))
        }
        Event::ApprovalRequested(event) => {
            let subject = subject_of(event);
            let description = event.description.as_deref().unwrap_or_default().as_bytes();
            // A decision in one conversation does not apply to another one.
            let leaf = leaf.unwrap_or_default();
            (b"approval", event.name.as_str(), Hash::of_parts(&[event.title.as_bytes(), description, &subject.0, &leaf.0]))
        }
        Event::PromiseCreated(event) => {
            let of_key = event.key.as_ref().map_or_else(Hash::default, |key| Hash::of_parts(&[key.as_bytes()]));
            (b"promise", event.name.as_str(), of_key)
        }
        _ => return None,
    };
    Some(Hash::of_parts(&[tag, name.as_bytes(), &content.0]))
}

/// Returns the subject of an approval, without its wording: its name, the data shown, the data that the decision is bound to, and
/// the schema of its answer: an answer to another question is none.
pub(super) fn subject(event: &Event) -> Option<Identity> {
    let Event::ApprovalRequested(event) = event else { return None };
    Some(subject_of(event))
}

fn subject_of(event: &ApprovalRequested) -> Identity {
    let show = event.show.as_ref().map(Hash::of).unwrap_or_default();
    let (name, bound_to) = (event.name.as_str().as_bytes(), event.bound_to.unwrap_or_default());
    match event.answer_schema.as_ref().map(Hash::of) {
        None => Hash::of_parts(&[name, &show.0, &bound_to.0]),
        Some(schema) => Hash::of_parts(&[name, &show.0, &bound_to.0, &schema.0]),
    }
}

pub(super) fn step_identity(name: &Name, input_hash: Option<Hash>) -> Identity {
    Hash::of_parts(&[b"step", name.as_str().as_bytes(), &input_hash.unwrap_or_default().0])
}

/// Returns the call id of a call that can be matched by content, or of an entry.
pub(super) fn call_id_of(event: &Event) -> Option<&CallId> {
    use Event::*;
    let is_call = event.is_step_result()
        || matches!(event, TaskScheduled(_) | ChildStarted(_) | ChildAwaited(_) | SignalSent(_))
        || matches!(event, ApprovalRequested(_) | PromiseCreated(_) | EntryAppended(_));
    event.call_id().filter(|_| is_call)
}

pub(super) fn effect_of(event: &Event) -> EffectOf {
    match event {
        Event::TaskScheduled(event) if event.options.class == Some(EffectClass::Pure) => EffectOf::Never,
        Event::TaskScheduled(event) if event.options.class.is_some() => EffectOf::Attempt,
        Event::TaskScheduled(_) | Event::StepCompleted(_) | Event::StepFailed(_) => EffectOf::Always,
        Event::ChildStarted(_) | Event::SignalSent(_) => EffectOf::Always,
        Event::ApprovalRequested(_) => EffectOf::Decision,
        _ => EffectOf::Never,
    }
}

/// Returns the call id that the input answers.
pub(super) fn answered_call_id(event: &mut Event) -> Option<&mut CallId> {
    Some(match event {
        Event::TaskCompleted(event) => &mut event.call_id,
        Event::TaskFailed(event) => &mut event.call_id,
        Event::ChildCompleted(event) => &mut event.call_id,
        Event::ChildFailed(event) => &mut event.call_id,
        Event::TimerFired(event) => &mut event.call_id,
        Event::ApprovalDecided(event) => &mut event.call_id,
        Event::PromiseResolved(event) => &mut event.call_id,
        Event::StepCompleted(event) => &mut event.call_id,
        Event::StepFailed(event) => &mut event.call_id,
        _ => return None,
    })
}
