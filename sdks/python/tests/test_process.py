"""Processes that are killed, forked, interrupted or blocked, and memory that stays flat."""

import asyncio
import collections
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import HANG_S, opened

from onward import ContextMisused, Ctx, DirectoryInUse, InvalidArguments, Onward, OnwardError, ShutDown, task, workflow

HERE = Path(__file__).parent


def start_orders(directory: str, effects: Path, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, str(HERE / "orders.py"), directory, str(effects), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_process_that_is_killed_at_random_loses_nothing_and_repeats_no_recorded_step(tmp_path: Path) -> None:
    seed = int(os.environ.get("ONWARD_SEED", "1"))
    print(f"reproduce with ONWARD_SEED={seed}")
    moments = random.Random(seed)
    directory, effects = str(tmp_path / "data"), tmp_path / "effects.txt"
    effects.touch()
    count, kills = 20, 0
    # Each start gets a little more time than the one before, so that the orders end after some kills.
    while True:
        process = start_orders(directory, effects, count)
        assert process.stdout is not None
        guard = threading.Timer(HANG_S, process.kill)
        guard.start()
        if kills < 8:
            process.stdout.readline()
            time.sleep(moments.random() * 0.01 * (kills + 1))
            process.kill()
        ended = process.stdout.read()
        process.wait()
        guard.cancel()
        if "ended" in ended:
            break
        kills += 1
        assert kills < 100, "the orders do not end"
    assert kills >= 3, "the process was not killed often enough to prove anything"
    keys = collections.Counter(effects.read_text().split("\n")[:-1])
    steps = collections.Counter(key.rsplit(" ", 1)[0] for key in keys)
    assert len(steps) == count * 8, "a step is missing"
    assert set(steps.values()) == {1}, "a step ran with two idempotency keys"
    # Only a step that was running at a kill may run again: at most one, or the four of the gather, for each order and kill.
    assert sum(keys.values()) - len(keys) <= kills * count * 4


def run_python(code: str, *arguments: str, expect: int | None = 0) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    output = done.stdout + done.stderr
    assert expect is None or done.returncode == expect, output
    return output


PREFIX = """
import asyncio, os, sys, threading
from onward import *

@workflow("w")
async def w(ctx: Ctx) -> str:
    await ctx.step("s", asyncio.sleep, 0)
    await ctx.signal("go").recv()
    return "end"
"""


def test_the_interpreter_exits_while_runs_are_open(directory: str) -> None:
    run_python(
        PREFIX
        + """
async def main():
    onward = await Onward.embedded(sys.argv[1], workflows=[w]).open()
    await onward.start(w, id="x")
    asyncio.get_running_loop().call_later(0.05, lambda: None)
    await asyncio.sleep(0.1)
asyncio.run(main())
print("exits")
""",
        directory,
    )
    # Nothing was lost, and the directory is free.
    output = run_python(
        PREFIX
        + """
async def main():
    async with Onward.embedded(sys.argv[1], workflows=[w]) as onward:
        run = onward.run("x", w)
        await run.signal("go")
        print(await run.result())
asyncio.run(main())
""",
        directory,
    )
    assert output == "end\n"


def test_sys_exit_and_exceptions_in_main_end_the_process(directory: str) -> None:
    for statement, code, wanted in [("sys.exit(3)", 3, ""), ("raise ValueError('oops')", 1, "oops")]:
        output = run_python(
            PREFIX
            + f"""
async def main():
    async with Onward.embedded(sys.argv[1], workflows=[w]) as onward:
        await onward.start(w)
        {statement}
asyncio.run(main())
""",
            directory,
            expect=code,
        )
        assert wanted in output


def test_ctrl_c_ends_the_process(directory: str) -> None:
    code = (
        PREFIX
        + """
async def main():
    async with Onward.embedded(sys.argv[1], workflows=[w]) as onward:
        run = await onward.start(w)
        print("ready", flush=True)
        await run.result()
asyncio.run(main())
"""
    )
    process = subprocess.Popen([sys.executable, "-c", code, directory], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=HANG_S)
    assert "KeyboardInterrupt" in errors
    assert process.returncode in (1, 130, -signal.SIGINT)


def test_a_forked_child_gets_a_clear_error_and_the_parent_goes_on(directory: str) -> None:
    output = run_python(
        PREFIX
        + """
async def main():
    async with Onward.embedded(sys.argv[1], workflows=[w]) as onward:
        run = await onward.start(w)
        child = os.fork()
        if child == 0:
            try:
                await run.signal("go")
            except OnwardError as error:
                os._exit(7 if error.code == "process_forked" else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        await run.signal("go")
        print(await run.result())
asyncio.run(main())
""",
        directory,
    )
    assert "end" in output.splitlines()


async def test_a_directory_is_open_once_and_free_after_close(directory: str) -> None:
    async with opened(store=directory):
        with pytest.raises(DirectoryInUse) as caught:
            async with opened(store=directory):
                pass
        assert caught.value.hint
    async with opened(store=directory):
        pass


async def test_use_after_close_and_in_another_loop_is_refused() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> None:
        await ctx.signal("never").recv()

    onward = Onward.in_memory(workflows=[w])
    with pytest.raises(OnwardError, match="not open"):
        await onward.start(w)
    await onward.open()
    run = await onward.start(w)
    waiting = asyncio.create_task(run.result())
    errors = []

    def other_loop() -> None:
        try:
            asyncio.run(run.view())
        except OnwardError as error:
            errors.append(error.code)

    thread = threading.Thread(target=other_loop)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert errors == ["context_misused"]
    await onward.close()
    await onward.close()
    with pytest.raises(ShutDown):
        await waiting
    with pytest.raises(ShutDown):
        await run.view()


async def test_close_lets_steps_finish_and_runs_go_on_at_the_next_start(directory: str) -> None:
    ran: list[str] = []
    began = asyncio.Event()

    async def slow() -> None:
        ran.append("began")
        began.set()
        await asyncio.sleep(0.1)
        ran.append("ended")

    @workflow("w")
    async def w(ctx: Ctx) -> str:
        await ctx.step("slow", slow)
        await ctx.signal("go").recv()
        return "end"

    async with opened(w, store=directory) as onward:
        await onward.start(w, id="x")
        await began.wait()
    assert ran == ["began", "ended"]
    async with opened(w, store=directory) as onward:
        run = onward.run("x", w)
        await run.signal("go")
        assert await run.result() == "end"
    assert ran == ["began", "ended"]


def test_code_that_is_closed_unwinds_without_noise(directory: str) -> None:
    code = (
        PREFIX
        + """
closed = []

@workflow("unwinds")
async def unwinds(ctx: Ctx) -> str:
    async def part(name: str) -> None:
        try:
            await ctx.signal(name).recv()
        finally:
            closed.append(name)
            await ctx.step("clean", asyncio.sleep, 0)
            await asyncio.sleep(0)
    try:
        tasks = [asyncio.create_task(part(name)) for name in "ab"]
        await asyncio.wait_for(asyncio.gather(*tasks), 3600)
    finally:
        try:
            await ctx.step("main", asyncio.sleep, 0)
        finally:
            await asyncio.sleep(0)
    return "end"

async def main():
    async with Onward.embedded(sys.argv[1], workflows=[unwinds]) as onward:
        run = await onward.start(unwinds, id="u")
        await run.wait(status="waiting")
    if closed:
        assert sorted(closed) == ["a", "b"], closed
    async with Onward.embedded(sys.argv[1], workflows=[unwinds]) as onward:
        run = onward.run("u", unwinds)
        await run.signal("a")
        await run.signal("b")
        print(await run.result())
asyncio.run(main())
"""
    )
    for arguments in ([], ["-X", "dev"]):
        command = [sys.executable, *arguments, "-c", code, directory + str(len(arguments))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
        assert (done.stdout, done.stderr) == ("end\n", "")


async def test_ctx_outside_of_its_run_is_refused() -> None:
    kept: list[Ctx] = []
    errors: list[str] = []

    @workflow("w")
    async def w(ctx: Ctx) -> None:
        kept.append(ctx)

        async def in_step() -> None:
            try:
                await ctx.sleep(1)
            except OnwardError as error:
                errors.append(error.code)

        def in_thread() -> None:
            try:
                ctx.sleep(1)
            except OnwardError as error:
                errors.append(error.code)

        await ctx.step("async", in_step)
        await ctx.step("plain", in_thread)

    async with opened(w, check_replay="off") as onward:
        await (await onward.start(w)).result()
        with pytest.raises(OnwardError) as caught:
            kept[0].sleep(1)
        assert caught.value.code == "context_misused" and caught.value.hint
    assert errors == ["context_misused"] * 2


async def test_an_event_loop_that_is_blocked_runs_nothing_twice(directory: str) -> None:
    ran: list[int] = []

    @task("t")
    async def t(number: int) -> int:
        ran.append(number)
        return number

    @workflow("w")
    async def w(ctx: Ctx, number: int) -> int:
        await ctx.step("s", lambda: ran.append(-number))
        return await ctx.task(t, number)

    async with opened(w, t, store=directory, lease_ms=1000, check_replay="off") as onward:
        runs = [await onward.start(w, number) for number in range(1, 21)]
        await asyncio.sleep(0.01)
        time.sleep(3)  # three leases long
        assert [await run.result() for run in runs] == list(range(1, 21))
    assert sorted(ran) == sorted([*range(1, 21), *range(-20, 0)])


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_flat_over_many_runs(directory: str) -> None:
    print(run_python(MEMORY, directory))


MEMORY = (
    "import sys; sys.path.insert(0, "
    + repr(str(HERE))
    + """)
import asyncio, gc
from onward import Ctx, Failure, workflow
from conftest import opened
from test_process import resident_bytes

async def one(n): return n
async def bad(): raise ValueError("x")

@workflow("w")
async def w(ctx: Ctx, number: int) -> int:
    first, second = await asyncio.gather(ctx.step("a", one, number), ctx.step("b", one, 1))
    try:
        await ctx.step("c", bad)
    except Failure:
        pass
    sleep = ctx.sleep(3600)
    sleep.cancel()
    if number % 10 == 0:
        await ctx.signal("never").recv()
    if number % 10 == 1:
        raise ValueError("no")
    return first + second

async def main():
    async with opened(w, store=sys.argv[1], check_replay="off", cached_runs_max=10) as onward:
        async def one_run(number):
            run = await onward.start(w, number)
            if number % 10 == 0:
                await run.wait(status="waiting")
                await run.terminate()
            elif number % 10 == 1:
                await run.wait(status="failed")
            else:
                await run.result()
        async def batch(count):
            for begin in range(0, count, 200):
                await asyncio.gather(*(one_run(number) for number in range(begin, begin + 200)))
        await batch(1000)
        gc.collect()
        gc.disable()  # what stays now is a reference cycle
        before = resident_bytes(), len(gc.get_objects())
        await batch(2000)
        objects = len(gc.get_objects()) - before[1]
        grown = resident_bytes() - before[0]
        print(f"{grown / 2000:.0f} bytes and {objects / 2000:.2f} objects stay for each run")
        assert objects < 200, "finished runs leave objects"
        assert grown < 2000 * 6144, "finished runs leave memory"
asyncio.run(main())
"""
)


def test_names_of_the_package_are_complete() -> None:
    import onward

    for name in onward.__all__:
        assert getattr(onward, name) is not None
    assert onward.__version__.count(".") == 2
    gc.collect()


@pytest.mark.parametrize("place", ["step", "workflow"])
def test_sys_exit_in_a_step_or_workflow_ends_the_process_without_waiting(directory: str, place: str) -> None:
    code = (
        PREFIX
        + """
async def leave():
    sys.exit(3)

@workflow("leaves")
async def leaves(ctx: Ctx) -> None:
    await ctx.step("leave", leave) if sys.argv[2] == "step" else await leave()

async def main():
    # The limit of the test is shorter.
    async with Onward.embedded(sys.argv[1], workflows=[leaves], shutdown_timeout=3600) as onward:
        await (await onward.start(leaves)).result()
asyncio.run(main())
"""
    )
    run_python(code, directory, place, expect=3)


def test_a_forked_child_that_leaves_the_block_ends_and_one_that_opens_it_works(directory: str) -> None:
    output = run_python(
        PREFIX
        + """
before = Onward.in_memory(workflows=[w])  # opened in the child alone

async def child():
    async with before:
        run = await before.start(w)
        await run.signal("go")
        assert await run.result() == "end"

async def main():
    parent = os.getpid()
    async with Onward.embedded(sys.argv[1], workflows=[w]) as onward:
        run = await onward.start(w)
        if os.fork() != 0:
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
            await run.signal("go")
            print(await run.result())
    if os.getpid() != parent:
        os._exit(7)  # the event loop is that of the parent

if os.fork() == 0:
    asyncio.run(child())
else:
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    asyncio.run(main())
""",
        directory,
    )
    assert "end" in output.splitlines()  # from 3.12 with a warning about threads


async def test_an_onward_is_opened_once_and_closed_in_its_loop() -> None:
    onward = Onward.in_memory()
    opening = await asyncio.gather(onward.open(), onward.open(), return_exceptions=True)
    assert [type(found) for found in opening] == [Onward, ContextMisused]

    def close() -> None:
        with pytest.raises(ContextMisused):
            asyncio.run(onward.close())

    await asyncio.to_thread(close)
    await onward.close()
    with pytest.raises(ContextMisused) as caught:
        await onward.open()
    assert caught.value.hint


async def test_options_that_are_wrong_are_refused_by_name() -> None:
    options: list[tuple[str, Any]] = [("max_threads", 0), ("shutdown_timeout", None), ("retention_ms", [b""]), ("worflows", [])]
    for name, value in options:
        with pytest.raises(InvalidArguments, match=name):
            await Onward.in_memory(**{name: value}).open()


async def test_another_onward_is_refused_in_workflow_code() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> str:
        try:
            await onward.start("other")
        except ContextMisused as error:
            return str(error)
        return "started"

    async with opened(w) as onward, opened(w) as second:
        assert "ctx.child" in await (await onward.start(w)).result()
        assert "ctx.child" in await (await second.start(w)).result()
