"""Schedules: runs that start by the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar

from ._ctx import attribute, epoch_ms, input_of, name_of
from ._errors import invalid
from ._json import Raw, arguments, milliseconds, raw

if TYPE_CHECKING:
    from ._client import Onward, RunHandle

O = TypeVar("O")

#: What happens to a slot while a run of the schedule is running.
Overlap = Literal["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all"]


class ScheduleTimes(TypedDict, total=False):
    """The times of a schedule."""

    #: Expressions of 5 fields, or of 6 with seconds in front.
    cron: str | Sequence[str]
    #: Intervals, as a `timedelta` or in seconds.
    every: timedelta | float | Sequence[timedelta | float]
    #: The time by which the intervals are later.
    offset: timedelta | float
    #: Single times.
    at: datetime | Sequence[datetime]
    #: The IANA name of the time zone; UTC by default.
    zone: str
    #: Dates such as `2026-12-25`, and ranges such as `2026-12-24/2027-01-01`, that have no slots.
    except_dates: str | Sequence[str]
    start_at: datetime
    #: Slots are before this time.
    end_at: datetime
    #: The longest delay of a slot.
    jitter: timedelta | float
    #: A specification as the API writes it (`calendars`, `except`, ..), to which the other fields add.
    spec: dict[str, Any]


class ScheduleOptions(ScheduleTimes, total=False):
    """The times of a schedule, what it starts, and how."""

    #: The input of the runs.
    input: Any
    #: The texts of the input are templates, rendered for each slot: `{{ slot.date }}`.
    template: bool
    #: What happens to a slot while a run is running; the default skips it.
    overlap: Overlap
    #: The age up to which a slot is started late; a day by default.
    catch_up: timedelta | float
    #: Pause the schedule when a run fails.
    pause_on_failure: bool
    #: The most slots that wait with `overlap="buffer_all"`; 100 by default.
    buffer_max: int
    #: The version of the code; the current one at each start by default.
    version: str
    attributes: dict[str, Any]
    #: Cancels a run after this time.
    deadline: timedelta | float
    #: The budget of each run.
    budget: dict[str, Any]
    #: Also if no worker is known to have the kind.
    force: bool


@dataclass(frozen=True)
class Slot:
    """A time of a schedule, and when it is due: later by its jitter."""

    slot: datetime
    due_at: datetime


@dataclass(frozen=True)
class ScheduleLine:
    """A line of the history: a run, or slots without one."""

    at: datetime
    #: The slot of the run, or the first one without a run.
    slot: datetime
    #: The id of the run; `None` for slots without one.
    run: str | None
    #: `clock`, `backfill` or `trigger`.
    cause: str
    #: `running`, `completed`, `failed`, `canceled`, `terminated`, `existed` or `skipped`.
    outcome: str
    #: The code of the failure, or why the slots have no run: `overlap`, `paused`, `missed`, ..
    reason: str | None
    ended_at: datetime | None
    #: The last of the slots without a run, and their number.
    last_slot: datetime
    count: int


@dataclass(frozen=True)
class ScheduleTotals:
    """Counts since the schedule was created."""

    started: int
    completed: int
    failed: int
    #: Slots without a run, missed ones included.
    skipped: int
    missed: int


@dataclass(frozen=True)
class ScheduleView:
    """A schedule at one moment."""

    id: str
    kind: str
    input: Any
    #: The specification, as the API writes it.
    spec: dict[str, Any]
    overlap: Overlap
    #: The number of changes of the definition.
    revision: int
    #: The note of the pause; `None` while the schedule is active.
    paused: str | None
    #: The ids of runs that are running, oldest first.
    running: list[str]
    #: The ids of runs that wait for another one to end.
    waiting: list[str]
    #: The next slots; none while the schedule is paused.
    next: list[Slot]
    #: The last lines, oldest first; empty in lists.
    history: list[ScheduleLine]
    totals: ScheduleTotals
    #: Everything that the API says.
    details: dict[str, Any]

    @classmethod
    def from_json(cls, view: dict[str, Any]) -> ScheduleView:
        target, options = view["definition"]["target"], view["definition"]["options"]
        payload = target["input"]
        return cls(
            id=view["schedule"],
            kind=target["kind"],
            input=payload.get("json", payload),
            spec=view["definition"]["spec"],
            overlap=options["overlap"],
            revision=view["revision"],
            paused=view["paused"]["note"] if view.get("paused") else None,
            running=[running["firing"]["run"] for running in view["running"]],
            waiting=[firing["run"] for firing in view["buffered"]],
            next=slots_of(view["next"]),
            history=[line_of(entry) for entry in view["history"]],
            totals=ScheduleTotals(**{name: view["totals"][name] for name in ScheduleTotals.__dataclass_fields__}),
            details=view,
        )


@dataclass(frozen=True)
class Triggered(Generic[O]):
    """The run of a trigger."""

    run: RunHandle[O]
    #: `started`, `buffered` (it starts when another run has ended), `skipped` or `existed`.
    outcome: Literal["started", "buffered", "skipped", "existed"]


class ScheduleHandle(Generic[O]):
    """A schedule, by its id. A handle is only a name: it costs nothing, and the schedule need not exist."""

    __slots__ = ("_onward", "_workflow", "id")

    def __init__(self, onward: Onward, id: str, workflow: Any = None) -> None:
        self._onward = onward
        self._workflow = workflow
        self.id = id

    def __repr__(self) -> str:
        return f"<schedule {self.id!r}>"

    async def _do(self, verb: str, **fields: Any) -> Any:
        return await self._onward.request(verb, schedule=self.id, **fields)

    async def read(self) -> ScheduleView:
        """Returns definition, state, next slots and history."""
        return ScheduleView.from_json(await self._do("read_schedule"))

    async def pause(self, note: str = "") -> ScheduleView:
        """Pauses the schedule: its slots are skipped until it is resumed."""
        return ScheduleView.from_json(await self._do("pause_schedule", note=note))

    async def resume(self, note: str = "") -> ScheduleView:
        """Resumes the schedule; the slots of the pause stay skipped."""
        return ScheduleView.from_json(await self._do("resume_schedule", note=note))

    async def trigger(self, *, id: str | None = None, overlap: Overlap | None = None) -> Triggered[O]:
        """Starts a run at once, also while the schedule is paused; with an id, a repeat starts nothing."""
        reply = await self._do("trigger_schedule", request_id=id, overlap=overlap)
        return Triggered(self._run(reply["run"]), reply["outcome"])

    async def backfill(
        self, start: datetime, end: datetime, *, id: str | None = None, overlap: Overlap | None = None
    ) -> ScheduleView:
        """Starts the slots from `start` on and before `end` that have no run yet, one after the other by default.

        Returns while the runs are starting; with an id, a repeat starts nothing.
        """
        fields = {"from": time_of(start), "until": time_of(end), "request_id": id, "overlap": overlap}
        return ScheduleView.from_json(await self._do("backfill_schedule", **fields))

    async def cancel_backfill(self, id: str | None = None) -> ScheduleView:
        """Cancels the backfill with this id, or all backfills; runs that were started continue."""
        return ScheduleView.from_json(await self._do("cancel_backfill", request_id=id))

    async def next_slots(self, count: int = 10, *, after: datetime | None = None) -> list[Slot]:
        """Returns the next slots, also while the schedule is paused."""
        reply = await self._do("list_slots", limit=count, after=None if after is None else time_of(after))
        return slots_of(reply["slots"])

    def run_at(self, slot: datetime) -> RunHandle[O]:
        """Returns the handle of the run of a slot; `result` also waits for its start, if that was decided."""
        text = time_of(slot)
        return self._run(f"{self.id}@{text.replace('.000Z', 'Z')}")

    def _run(self, id: str) -> RunHandle[O]:
        return self._onward.run(id) if self._workflow is None else self._onward.run(id, self._workflow)

    async def delete(self) -> None:
        """Deletes the schedule. Runs that it started continue."""
        await self._do("delete_schedule")


def put_arguments(id: str, workflow: Any, options: ScheduleOptions) -> str:
    """Returns the arguments of the verb `put_schedule`."""
    fields: dict[str, Any] = dict(options)
    payload = Raw(arguments(json=input_of("workflow", workflow, fields.pop("input", None))))
    attributes = [
        {"name": name, "value": attribute_value(value)} for name, value in (fields.pop("attributes", None) or {}).items()
    ]
    target = arguments(
        kind=name_of(workflow),
        input=payload,
        is_template=bool(fields.pop("template", False)),
        version=fields.pop("version", None),
        attributes=raw(attributes, "the attributes"),
        deadline_ms=milliseconds(fields.pop("deadline", None)),
    )
    policy = arguments(
        overlap=fields.pop("overlap", None),
        catch_up_ms=milliseconds(fields.pop("catch_up", None)),
        pause_on_failure=bool(fields.pop("pause_on_failure", False)),
        buffer_max=fields.pop("buffer_max", None),
    )
    budget, force = fields.pop("budget", None), bool(fields.pop("force", False))
    definition = arguments(target=Raw(target), spec=raw(spec_of(fields), "the times"), options=Raw(policy))
    return arguments(schedule=id, definition=Raw(definition), budget=budget, force=force)


def spec_of(times: dict[str, Any]) -> dict[str, Any]:
    """Returns the specification of the API."""
    fields = {name: value for name, value in times.items() if value is not None}
    spec: dict[str, Any] = dict(fields.pop("spec", {}))
    offset_ms = milliseconds(fields.pop("offset", None)) or 0
    intervals = [{"every_ms": milliseconds(every), "offset_ms": offset_ms} for every in several(fields.pop("every", ()))]
    added = {
        "cron": several(fields.pop("cron", ())),
        "every": intervals,
        "at": [time_of(moment) for moment in several(fields.pop("at", ()))],
        "except": [{"dates": [dates]} for dates in several(fields.pop("except_dates", ()))],
    }
    for name, values in added.items():
        if values:
            spec[name] = [*spec.get(name, ()), *values]
    for name in ("start_at", "end_at"):
        if name in fields:
            spec[name] = time_of(fields.pop(name))
    if "zone" in fields:
        spec["time_zone"] = fields.pop("zone")
    if "jitter" in fields:
        spec["jitter_ms"] = milliseconds(fields.pop("jitter"))
    if fields:
        raise invalid(f"a schedule has no option `{next(iter(fields))}`")
    return spec


def several(value: Any) -> list[Any]:
    """Returns the values of an option that has one or several."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def attribute_value(value: Any) -> dict[str, Any]:
    """Returns the value of an attribute with its type, as the API writes it."""
    if isinstance(value, datetime):
        return {"time": time_of(value)}
    checked = attribute(value)
    if isinstance(checked, bool):
        return {"bool": checked}
    return {"int": checked} if isinstance(checked, int) else {"text": checked}


def time_of(moment: datetime) -> str:
    """Returns a time as the API writes it."""
    if not isinstance(moment, datetime):
        raise invalid(f"a time is a `datetime` with a time zone, not {moment!r:.40}")
    milli = timedelta(milliseconds=epoch_ms(moment))
    text = (datetime(1970, 1, 1, tzinfo=timezone.utc) + milli).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def moment_of(text: str) -> datetime:
    """Returns the time of a text of the API."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def slots_of(slots: list[dict[str, str]]) -> list[Slot]:
    return [Slot(moment_of(slot["slot"]), moment_of(slot["due_at"])) for slot in slots]


def line_of(entry: dict[str, Any]) -> ScheduleLine:
    at, ended, skipped = moment_of(entry["at"]), entry.get("ended"), entry.get("skipped")
    if skipped is not None:
        first, last = moment_of(skipped["first"]), moment_of(skipped["last"])
        return ScheduleLine(at, first, None, skipped["cause"], "skipped", skipped["reason"], at, last, skipped["count"])
    firing = entry["started"]
    slot, ended_at = moment_of(firing["slot"]), entry.get("ended_at")
    return ScheduleLine(
        at=at,
        slot=slot,
        run=firing["run"],
        cause=firing["cause"],
        outcome="running" if ended is None else ended["ending"],
        reason=None if ended is None else ended.get("code"),
        ended_at=None if ended_at is None else moment_of(ended_at),
        last_slot=slot,
        count=1,
    )
