"""The same programs against the server `onward`, with and without keys. `ONWARD_BIN` is its path."""

import asyncio
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onward import Ctx, Onward, OnwardError, RunFailed, RunNotFound, TaskCtx, Unauthorized, task, workflow

BINARY = os.environ.get("ONWARD_BIN", "")

pytestmark = pytest.mark.skipif(not BINARY, reason="ONWARD_BIN is not set; `cargo xtask test python` sets it")


class Server:
    """A server with its state in memory, on a free port."""

    def __init__(self, *arguments: str) -> None:
        command = [BINARY, "--json", "dev", "--ephemeral", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.url = next(word for word in line.split('"') if word.startswith("http://"))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.stop()


@task("shout")
def shout(ctx: TaskCtx, text: str) -> str:
    ctx.heartbeat({"half": True})
    return text.upper()


@workflow("order")
async def order(ctx: Ctx, item: str) -> str:
    paid, payment = await asyncio.gather(ctx.step("charge", lambda: f"paid {item}"), ctx.signal("payment", int).recv())
    ctx.state["paid"] = True
    await ctx.sleep(0.01)
    if payment < 0:
        raise ValueError("refused")
    return await ctx.task(shout, f"{paid} {payment}", retry=3)


async def test_workflows_and_tasks_run_on_a_server(server: Server) -> None:
    async with Onward.connect(server.url, workflows=[order], tasks=[shout]) as onward:
        run = await onward.start(order, "pot", id="o-1")
        await run.signal("payment", 5, id="p-1")
        await run.signal("payment", 5, id="p-1")
        assert await run.result() == "PAID POT 5"
        assert (await run.view()).state == {"paid": True}
        bad = await onward.start(order, "cup", id="o-2")
        await bad.signal("payment", -1)
        with pytest.raises(RunFailed) as caught:
            await bad.result()
        assert caught.value.failure is not None
        assert (caught.value.failure.type, caught.value.failure.message) == ("ValueError", "refused")
        assert 'raise ValueError("refused")' in (caught.value.failure.stack or "")
        with pytest.raises(RunNotFound):
            await onward.run("none").view()


async def test_a_client_without_workflows_starts_signals_and_watches(server: Server) -> None:
    async with Onward.connect(server.url, workflows=[order], tasks=[shout]):
        async with Onward.connect(server.url) as client:
            run = await client.start("order", "pan", id="o-3")
            frames: list[Any] = []
            async for frame in run.watch():
                frames.append(frame)
                if len(frames) == 1:
                    await run.signal("payment", 7)
            assert frames
            assert await run.result() == "PAID PAN 7"
            events = [event["type"] for record in await run.log() for event in record["events"]]
            assert events[0] == "run_started" and events[-1] == "run_completed"


async def test_a_run_goes_on_in_another_worker(server: Server) -> None:
    async with Onward.connect(server.url, workflows=[order], tasks=[shout]) as first:
        run = await first.start(order, "lid", id="o-4")
        await run.wait(status="waiting")
    async with Onward.connect(server.url, workflows=[order], tasks=[shout]) as second:
        run = second.run("o-4", order)
        await run.signal("payment", 1)
        assert await run.result() == "PAID LID 1"


async def test_a_server_that_is_away_is_an_error_with_a_hint() -> None:
    with pytest.raises(OnwardError) as caught:
        async with Onward.connect("http://127.0.0.1:9") as onward:
            await onward.start("order", "x")
    assert caught.value.code and caught.value.message


async def test_keys_authenticate_and_scopes_limit(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"

    def create(name: str, scope: str) -> str:
        command = [BINARY, "--json", "key", "create", "--name", name, "--scope", scope, "--keys", str(keys)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return next(word for word in printed.split('"') if word.startswith("onw_"))

    worker, reader = create("worker", "all"), create("reader", "read")
    server = Server("--keys", str(keys))
    try:
        async with Onward.connect(server.url, key=worker, workflows=[order], tasks=[shout]) as onward:
            run = await onward.start(order, "pot", id="o-1")
            await run.signal("payment", 5)
            assert await run.result() == "PAID POT 5"
            async with Onward.connect(server.url, key=reader) as readable:
                assert (await readable.run("o-1").view()).status == "completed"
                with pytest.raises(Unauthorized) as refused:
                    await readable.start("order", "x")
                assert refused.value.status == 403, refused.value
            for key, status in ((None, 401), ("onw_wrong", 400)):
                with pytest.raises(Unauthorized) as unknown:
                    async with Onward.connect(server.url, key=key) as stranger:
                        await stranger.run("o-1").view()
                assert unknown.value.status == status, unknown.value
    finally:
        server.stop()


async def test_a_start_that_a_quota_refuses_names_the_time_of_the_next_attempt(server: Server) -> None:
    body = b'{"start_rate": {"starts_max": 1, "period_ms": 3600000}}'
    headers = {"Content-Type": "application/json"}
    put = urllib.request.Request(f"{server.url}/v1/quotas/limited", data=body, headers=headers, method="PUT")
    with urllib.request.urlopen(put) as answer:
        assert answer.status == 200
    async with Onward.connect(server.url, namespace="limited") as client:
        await client.start("order", "pot", id="q-1")
        with pytest.raises(OnwardError) as caught:
            await client.start("order", "pot", id="q-2")
        assert (caught.value.code, caught.value.status) == ("quota_exceeded", 429)
        assert caught.value.retry_after_ms is not None
        assert 3_000_000 < caught.value.retry_after_ms <= 3_700_000
