"""Schedules: what callers define, read and do."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from onward import Ctx, Onward, OnwardError, RunNotFound, workflow


@dataclass
class Day:
    day: str


@workflow("report")
async def report(ctx: Ctx, input: Day) -> str:
    return f"report of {input.day}"


@workflow("slow")
async def slow(ctx: Ctx) -> str:
    return await ctx.signal("end", str).recv()


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type, misc]


def engine() -> Onward:
    return Onward.in_memory(workflows=[report, slow], check_replay="every")


async def test_a_backfill_starts_the_runs_of_past_slots_with_rendered_inputs() -> None:
    async with engine() as onward:
        daily = await onward.put_schedule(
            "daily",
            report,
            cron="0 2 * * *",
            zone="Europe/Berlin",
            except_dates="2026-03-29",
            input=Day("{{ slot.date }}"),
            template=True,
        )
        await daily.backfill(utc(2026, 3, 28), utc(2026, 3, 31), id="march")
        results = [await daily.run_at(slot).result() for slot in (utc(2026, 3, 28, 1), utc(2026, 3, 30))]
        assert results == ["report of 2026-03-28", "report of 2026-03-30"]
        view = await daily.read()
        while view.totals.completed < 2:
            view = await daily.read()
        assert (view.totals.started, view.kind, view.input) == (2, "report", {"day": "{{ slot.date }}"})
        first = view.history[0]
        assert (first.run, first.cause, first.outcome, first.count) == ("daily@2026-03-28T01:00:00Z", "backfill", "completed", 1)
        assert first.slot == utc(2026, 3, 28, 1) and first.ended_at is not None
        slots = await daily.next_slots(3, after=utc(2026, 10, 24, 12))
        assert slots[0].slot == utc(2026, 10, 25) and len(slots) == 3 and len(view.next) == 5


async def signal_when_started(onward: Onward, run: str, value: str) -> None:
    while True:
        try:
            await onward.run(run).signal("end", value)
            return
        except RunNotFound:
            await asyncio.sleep(0.01)


async def test_a_trigger_starts_one_run_for_each_id_and_overlap_decides_about_further_ones() -> None:
    async with engine() as onward:
        options: dict[str, Any] = {"offset": 3600, "attributes": {"team": "ops", "level": 3, "hot": True}}
        handle = await onward.put_schedule("slow", slow, every=timedelta(days=1), **options)
        assert (await handle.pause("holidays")).paused == "holidays"
        one = await handle.trigger(id="one")
        assert (one.outcome, one.run.id) == ("started", "slow@now:one")
        assert (await handle.trigger(id="two")).outcome == "skipped"
        three = await handle.trigger(id="three", overlap="buffer_one")
        assert three.outcome == "buffered" and (await handle.read()).waiting == ["slow@now:three"]
        waiting = asyncio.ensure_future(three.run.result())
        await signal_when_started(onward, "slow@now:one", "first")
        assert await one.run.result() == "first"
        await signal_when_started(onward, "slow@now:three", "third")
        assert await waiting == "third"
        assert (await one.run.view()).attributes == {"team": "ops", "level": 3, "hot": True}
        view = await handle.resume()
        assert view.paused is None and view.overlap == "skip"
        assert [line.reason for line in view.history if line.outcome == "skipped"] == ["overlap"]


async def test_an_equal_definition_changes_nothing_and_another_one_replaces_it() -> None:
    async with engine() as onward:

        async def put(minutes: int) -> Any:
            every: list[timedelta | float] = [timedelta(minutes=minutes), 7200]
            return await (await onward.put_schedule("often", "report", every=every, input=Day("x"), jitter=5)).read()

        first, equal, other = await put(10), await put(10), await put(20)
        assert (equal.revision, other.revision) == (first.revision, first.revision + 1)
        assert other.spec == {"every": [{"every_ms": 1_200_000}, {"every_ms": 7_200_000}], "jitter_ms": 5_000}
        assert [(view.id, view.history) for view in await onward.schedules()] == [("often", [])]
        await onward.schedule("often").delete()
        with pytest.raises(OnwardError) as refused:
            await onward.schedule("often").read()
        assert (refused.value.code, await onward.schedules()) == ("schedule_not_found", [])


@pytest.mark.parametrize(
    ("kind", "options", "code"),
    [
        ("report", {"cron": "61 * * * *"}, "schedule_invalid"),
        ("report", {}, "schedule_invalid"),
        ("report", {"every": 3600, "zone": "Mars/Olympus"}, "schedule_invalid"),
        ("unknown", {"every": 3600}, "kind_not_found"),
        ("report", {"corn": "0 0 * * *"}, "value_invalid"),
        ("report", {"at": datetime(2030, 1, 1)}, "value_invalid"),
    ],
)
async def test_what_cannot_work_is_refused(kind: str, options: dict[str, Any], code: str) -> None:
    async with engine() as onward:
        await (await onward.start(report, Day("x"))).result()  # its worker is known now
        with pytest.raises(OnwardError) as refused:
            await onward.put_schedule("s", kind, **options)
        assert refused.value.code == code
        assert await onward.schedules() == []


async def test_slots_of_times_that_are_not_stored() -> None:
    async with engine() as onward:
        slots = await onward.preview_slots(2, at=[utc(2198, 1, 1, 9)], spec={"cron": ["0 0 1 1 *"], "start_at": "2198-01-01T00:00:00Z"})
        assert [slot.slot for slot in slots] == [utc(2198, 1, 1), utc(2198, 1, 1, 9)]
