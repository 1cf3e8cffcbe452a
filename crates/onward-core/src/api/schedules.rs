//! Requests about schedules.

use crate::budget::Budget;
use crate::run::RunHead;
use crate::run::schedule::schedule_key;
use crate::schedule::{
    BackfillRange, Firing, HistoryEntry, Overlap, Paused, RunningFiring, ScheduleDefinition, ScheduleHead, ScheduleSpec, Slots,
    SpecError, Totals,
};
use crate::{Name, Namespace, RunId, RunKey, Timestamp, message, numbered};

message! {
    /// A schedule to create, or a new definition of an existing one.
    pub struct PutScheduleRequest {
        1 => namespace: Namespace,
        2 => schedule: Name,
        /// Its `requester` and `granted` are set by the server.
        3 => definition: ScheduleDefinition,
        /// The budget of each run and its children.
        4 => budget: Option<Budget>,
        /// Also if no worker is known to have the kind.
        5 => force: bool,
    }

    pub struct PutScheduleReply {
        1 => schedule: ScheduleView,
        /// False if the schedule existed already.
        2 => created: bool,
    }

    pub struct ScheduleRequest { 1 => namespace: Namespace, 2 => schedule: Name }

    /// A query for schedules, newest first.
    #[derive(Default)]
    pub struct ScheduleQuery {
        1 => namespace: Namespace,
        /// 0 means the default.
        2 => limit: usize,
        /// End of the previous page.
        3 => cursor: Option<String>,
    }

    /// A page of schedules, without their histories.
    pub struct SchedulesReply { 1 => schedules: Vec<ScheduleView>, 2 => next: Option<String> }

    /// A pause or the end of one.
    pub struct PauseScheduleRequest {
        1 => namespace: Namespace,
        2 => schedule: Name,
        3 => note: String,
    }

    /// A request for a run at once.
    pub struct TriggerScheduleRequest {
        1 => namespace: Namespace,
        2 => schedule: Name,
        /// Idempotency key, and the end of the id of the run; random if absent.
        3 => request_id: Option<Name>,
        /// The policy of the schedule if absent.
        4 => overlap: Option<Overlap>,
    }

    pub struct TriggerScheduleReply { 1 => run: RunId, 2 => outcome: TriggerOutcome }

    /// A request for the slots from `from` on and before `until`.
    pub struct BackfillScheduleRequest {
        1 => namespace: Namespace,
        2 => schedule: Name,
        /// Idempotency key; random if absent.
        3 => request_id: Option<Name>,
        4 => from: Timestamp,
        5 => until: Timestamp,
        /// `buffer_all` if absent.
        6 => overlap: Option<Overlap>,
    }

    /// A request to end backfills.
    pub struct CancelBackfillRequest {
        1 => namespace: Namespace,
        2 => schedule: Name,
        /// The id of the request that began the backfill; all backfills if absent.
        3 => request_id: Option<Name>,
    }

    /// A query for slots of a schedule, or of a specification that is not stored.
    pub struct SlotsRequest {
        1 => namespace: Namespace,
        2 => schedule: Option<Name>,
        3 => spec: Option<ScheduleSpec>,
        /// The slots after this time; after now if absent.
        4 => after: Option<Timestamp>,
        /// 0 means 10.
        5 => limit: usize,
    }

    /// Slots in order.
    pub struct SlotsReply { 1 => slots: Vec<UpcomingSlot> }

    /// A slot, and the time at which it is due.
    #[derive(Copy, Eq)]
    pub struct UpcomingSlot { 1 => slot: Timestamp, 2 => due_at: Timestamp }

    /// A schedule as callers see it.
    pub struct ScheduleView {
        1 => schedule: Name,
        2 => definition: ScheduleDefinition,
        /// The number of changes of the definition.
        3 => revision: u32,
        4 => created_at: Timestamp,
        5 => updated_at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        6 => paused: Option<Paused>,
        /// Runs that are running, oldest first.
        7 => running: Vec<RunningFiring>,
        /// Firings that wait for a run to end.
        8 => buffered: Vec<Firing>,
        9 => backfills: Vec<BackfillRange>,
        /// The last runs, and slots without one, oldest first.
        10 => history: Vec<HistoryEntry>,
        11 => totals: Totals,
        /// The next slots; none while the schedule is paused.
        12 => next: Vec<UpcomingSlot>,
        13 => namespace: Namespace,
    }
}

numbered! {
    /// What happened to a triggered run.
    pub enum TriggerOutcome {
        0 => Started / "started",
        /// It starts when the run before it has ended.
        1 => Buffered / "buffered",
        /// A run is running, and the policy starts no other one.
        2 => Skipped / "skipped",
        /// A run of this id existed before.
        3 => Existed / "existed",
    }
}

/// The default number of slots in a reply.
const SLOTS_DEFAULT: usize = 10;

/// The maximum number of slots in a reply.
pub const SLOTS_MAX: usize = 1_000;

/// The number of next slots in a view.
const NEXT_SHOWN: usize = 5;

impl ScheduleView {
    /// Returns the view of a schedule; `None` for any other run.
    pub fn of(run: RunHead) -> Option<ScheduleView> {
        let ScheduleHead {
            id,
            definition,
            revision,
            created_at,
            updated_at,
            paused,
            decided_until,
            running,
            buffered,
            backfills,
            history,
            totals,
            ..
        } = *run.schedule?;
        let next = match &paused {
            None => upcoming(&definition.spec, id.as_str(), decided_until, NEXT_SHOWN).unwrap_or_default(),
            Some(_) => Vec::new(),
        };
        let (schedule, namespace) = (id, run.key.namespace);
        Some(ScheduleView {
            namespace,
            schedule,
            definition,
            revision,
            created_at,
            updated_at,
            paused,
            running,
            buffered,
            backfills,
            history,
            totals,
            next,
        })
    }

    /// Returns the view in a list.
    pub fn in_list(self) -> ScheduleView {
        ScheduleView { history: Vec::new(), ..self }
    }

    /// Returns the run that keeps the schedule.
    pub fn run(&self) -> RunKey {
        schedule_key(self.namespace.clone(), &self.schedule).expect("the id of a stored schedule is valid")
    }
}

/// Returns the first slots after a time with the times at which they are due.
///
/// # Errors
/// The first error of the specification.
pub fn upcoming(spec: &ScheduleSpec, schedule: &str, after: Timestamp, limit: usize) -> Result<Vec<UpcomingSlot>, SpecError> {
    let slots = Slots::new(spec)?;
    let limit = if limit == 0 { SLOTS_DEFAULT } else { limit.min(SLOTS_MAX) };
    let slot = |(slot, due_at)| UpcomingSlot { slot, due_at };
    Ok(slots.upcoming(schedule, after, limit).into_iter().map(slot).collect())
}
