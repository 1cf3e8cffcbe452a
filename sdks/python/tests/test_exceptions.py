"""Exceptions of unusual kinds: each ends its step or run, and none is lost."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import opened, paused_message, result_of

from onward import Ctx, Failure, InvalidArguments, RunFailed, task, workflow


class Unusual(BaseException):
    """As test runners and other event loops have them."""


class Declined(Failure):
    """A failure that forgets to call `super().__init__`."""

    def __init__(self, card: str) -> None:
        self.card = card


def wrong(**attributes: Any) -> Failure:
    failure = Failure("wrong", retryable=False)
    vars(failure).update(attributes)
    return failure


RAISED: dict[str, Callable[[], BaseException]] = {
    "Unusual": lambda: Unusual("x"),
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "Declined": lambda: Declined("visa"),
    "SyntaxError": lambda: SyntaxError("x", ("f", 1, "no number", "text")),  # type: ignore[arg-type]
    "404": lambda: wrong(code=404),
    "5": lambda: wrong(message=5),
    "1.5": lambda: wrong(retry_after_ms=1.5, message="1.5"),
    "nan": lambda: wrong(retry_after_ms=float("nan"), message="nan"),
    "past": lambda: wrong(retry_after_ms=-1, message="past"),
}
if sys.version_info >= (3, 11):
    RAISED["BaseExceptionGroup"] = lambda: BaseExceptionGroup("g", [Unusual("a"), ValueError("b")])


@pytest.mark.parametrize("name", RAISED)
async def test_every_exception_of_a_step_or_task_is_a_failure(name: str) -> None:
    def plain() -> None:
        raise RAISED[name]()

    async def on_loop() -> None:
        raise RAISED[name]()

    @task("plain")
    def plain_task() -> None:
        raise RAISED[name]()

    @task("on-loop")
    async def task_on_loop() -> None:
        raise RAISED[name]()

    @workflow("w")
    async def w(ctx: Ctx) -> list[str]:
        found = []
        calls: list[Callable[[], Any]] = [
            lambda: ctx.step("plain", plain),
            lambda: ctx.step("on loop", on_loop),
            lambda: ctx.task(plain_task, retry=1),
            lambda: ctx.task(task_on_loop, retry=1),
        ]
        for call in calls:
            try:
                await call()
            except Failure as failure:
                found.append(f"{failure} {failure.code}")
        return found

    async with opened(w, plain_task, task_on_loop) as onward:
        found = await (await onward.start(w)).result()
        assert len(found) == 4 and all(name in text for text in found), found
        assert onward.host.jobs == {}


@pytest.mark.parametrize("name", RAISED)
async def test_every_exception_of_workflow_code_ends_the_run(name: str) -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> None:
        await ctx.step("before", lambda: None)
        raise RAISED[name]()

    async with opened(w) as onward:
        with pytest.raises(RunFailed) as caught:
            await (await onward.start(w)).result()
    failure = caught.value.failure
    assert failure is not None
    assert failure.code == "canceled" if name == "CancelledError" else name in f"{failure} {failure.code}"
    assert caught.value.hint is not None and "failure()" not in caught.value.hint


@dataclass
class Strict:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise KeyError("negative")




async def test_a_result_that_cannot_be_read_or_written_ends_the_run() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Holder(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        item: Any

    def negative() -> Strict:
        return Strict.__new__(Strict)

    def written() -> dict[str, int]:
        return {"number": -1}

    written.__annotations__["return"] = Strict

    @workflow("w")
    async def w(ctx: Ctx, which: str) -> Any:
        if which == "read":
            await ctx.step("written", written)
        if which == "step":
            await ctx.step("model", lambda: Holder(item=object()))
        await ctx.step("before", lambda: None)
        return {"attribute": negative(), "model": Holder(item=object())}.get(which)

    wanted = {
        "read": "cannot make `Strict`: 'negative'",
        "step": "the result of step `model` is not JSON at $: `Holder` has no JSON",
        "model": "the result of workflow `w` is not JSON at $: `Holder` has no JSON",
        "attribute": "'Strict' object has no attribute 'number'",
    }
    async with opened(w) as onward:
        for which, message in wanted.items():
            with pytest.raises(RunFailed) as caught:
                await (await onward.start(w, which)).result()
            assert caught.value.failure is not None and message in caught.value.failure.message


async def test_handlers_fail_alone_and_keep_their_context_variables_to_themselves() -> None:
    import contextvars

    seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")

    @workflow("w")
    async def w(ctx: Ctx) -> None:
        def change() -> str:
            found = seen.get()
            seen.set("an earlier update")
            return found

        def fail() -> None:
            raise Unusual("no")

        ctx.update("change", change)
        ctx.update("fail", fail)
        ctx.query("fail", fail)
        ctx.query("seen", lambda: seen.get())
        ctx.query("built in", dict)
        await ctx.signal("end").recv()

    async with opened(w) as onward:
        run = await onward.start(w)
        for _ in range(2):
            assert await run.update("change") == "nothing"
            for call in (run.update, run.query):
                with pytest.raises(Exception, match="no"):
                    await call("fail")
        assert await run.query("seen") == "nothing"
        assert await run.query("built in", [["a", 1]]) == {"a": 1}
        await run.signal("end")
        await run.result()


async def test_an_error_of_the_package_pauses_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from onward._run import Run

    @workflow("w")
    async def w(ctx: Ctx) -> int:
        return await ctx.step("s", lambda: 1)

    def answer(*_: Any) -> None:
        raise LookupError("a mistake")

    async with opened(w) as onward:
        with monkeypatch.context() as patched:
            patched.setattr(Run, "answer", answer)
            run = await onward.start(w)
            assert "LookupError: a mistake" in await paused_message(onward, run)
        await run.resume()
        assert await run.result() == 1


async def test_a_step_without_a_name_is_refused_with_a_hint() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> str:
        try:
            await ctx.step(len, "abc")  # type: ignore[call-overload]
        except InvalidArguments as error:
            return error.hint or ""
        return "accepted"

    assert 'ctx.step("charge", charge, item)' in await result_of(w)


async def test_functions_that_ended_are_forgotten() -> None:
    canceled = asyncio.Event()

    async def waits() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            canceled.set()

    @workflow("w")
    async def w(ctx: Ctx) -> None:
        async def soon() -> int:
            return 1

        def fails() -> None:
            raise Unusual

        dropped = ctx.step("dropped", waits)
        await asyncio.gather(*(ctx.step("plain", lambda: 1) for _ in range(20)))
        await asyncio.gather(*(ctx.step("lambda of async", lambda: soon()) for _ in range(20)))
        await asyncio.gather(*(ctx.step("async", soon) for _ in range(20)))
        await asyncio.gather(*(ctx.step("fails", fails) for _ in range(20)), return_exceptions=True)
        dropped.cancel()
        await ctx.signal("end").recv()

    for factory in (None, getattr(asyncio, "eager_task_factory", None)):
        asyncio.get_running_loop().set_task_factory(factory)
        canceled.clear()
        async with opened(w, check_replay="off") as onward:
            run = await onward.start(w)
            await canceled.wait()
            await run.signal("end")
            await run.result()
            assert onward.host.jobs == {}
