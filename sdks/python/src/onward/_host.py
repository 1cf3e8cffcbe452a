"""The host: plays activations, runs functions of steps and tasks, and delivers replies, all on one event loop."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from asyncio import _get_running_loop, _set_running_loop
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from . import _guards
from ._ctx import Ctx
from ._definitions import Task, Workflow, is_async
from ._errors import OnwardError, ShutDown, Stopped, ValueInvalid, error_of
from ._json import encode, failure_json, loads
from ._loop import TurnLoop
from ._native import Bridge
from ._run import Run, StepJob, call_handler
from ._tasks import CURRENT, TaskCtx
from .agents import AgentCtx, ToolTable

LOG = logging.getLogger("onward")

#: Messages of one batch. More would keep other callbacks of the event loop waiting.
BATCH_MAX = 256

#: Kinds of messages, as in `native/convert.rs`.
START, ANSWER, UPDATE, STEP, TASK, CANCEL, QUERY, CLOSE, REPLY, ITEM, ENDED = range(11)

#: (name, attempt, idempotency key, trace) behind the job.
StepInfo = tuple[int, str, int, str, "str | None"]


class Stream:
    """Items of a request that streams."""

    __slots__ = ("items", "ready")

    def __init__(self) -> None:
        self.items: list[str] = []
        self.ready: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.ready is not None and not self.ready.done():
            self.ready.set_result(None)


class ThreadJob:
    """A function in the thread pool."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: Future[None] | None = None

    def cancel(self) -> None:
        if self.future is not None:
            self.future.cancel()


class Host:
    """Everything of one `Onward` that runs on its event loop."""

    def __init__(
        self,
        bridge: Bridge,
        workflows: list[Workflow[Any, Any]],
        tasks: list[Task[Any, Any]],
        tools: ToolTable,
        max_threads: int,
    ) -> None:
        self.bridge = bridge
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        #: By name and version. Without a version: the current one, which also continues the runs of its previous versions.
        self.workflows: dict[tuple[str, str | None], Workflow[Any, Any]] = {}
        for workflow in workflows:
            self.workflows.setdefault((workflow.name, None), workflow)
            self.workflows[workflow.name, workflow.version] = workflow
        self.tasks = {task.name: task for task in tasks}
        self.tools = tools
        self.turns = TurnLoop()
        self.runs: dict[int, Run] = {}
        #: Step functions to start after the activations of a batch.
        self.steps: list[StepJob] = []
        self.jobs: dict[int, Any] = {}
        self.finished: list[tuple[int, bool, str]] = []
        self.replies: dict[int, asyncio.Future[str]] = {}
        self.streams: dict[int, Stream] = {}
        self.max_threads = max_threads
        self.executor: ThreadPoolExecutor | None = None
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.is_closing = False
        _guards.install()
        self.loop.add_reader(bridge.fd, self.pump)
        self.loop.call_soon(self.pump)

    # ---- the pump ----

    def pump(self) -> None:
        """Takes a batch of messages and plays it."""
        batch = self.bridge.take(BATCH_MAX)
        if batch:
            self.play_batch(batch)
        if len(batch) == BATCH_MAX:
            self.loop.call_soon(self.pump)

    def play_batch(self, batch: list[tuple[Any, ...]]) -> None:
        played: list[tuple[int, tuple[bool, str] | None]] = []
        later: list[tuple[Any, ...]] = []
        closed: list[int] = []
        runs = self.runs
        hooks = sys.get_asyncgen_hooks()
        running = _get_running_loop()
        _set_running_loop(self.turns)
        # Asynchronous generators of workflow code are none of the user's loop.
        sys.set_asyncgen_hooks(None, self.turns.end_generator)
        try:
            for work in batch:
                try:
                    if work[0] == ANSWER or work[0] == UPDATE:
                        run = runs.get(work[1])
                        if run is not None:
                            self.play(run, work, played)
                    elif work[0] == REPLY:
                        self.reply(work)
                    elif work[0] == ITEM:  # before the reply that ends its stream
                        stream = self.streams.get(work[1])
                        if stream is not None:
                            stream.items.append(work[2])
                            stream.wake()
                    elif work[0] == START:
                        self.begin(work, played)
                    elif work[0] == CLOSE:
                        closed.append(work[1])
                    else:
                        later.append(work)
                except Exception:  # an error of this package must not lose the other messages
                    LOG.exception("a message of the engine was not processed: %r", work[:3])
        finally:
            sys.set_asyncgen_hooks(*hooks)
            _set_running_loop(running)
        # Steps start after the code of their runs is quiescent; the engine goes on meanwhile.
        if played:
            self.bridge.hand_back(played)
        if self.steps:
            self.start_steps()
        for work in later:
            try:
                self.start(work)
            except Exception:
                LOG.exception("a message of the engine was not processed: %r", work[:3])
        # After the queries of the same batch, which the code still answers.
        if closed:
            _set_running_loop(self.turns)
            try:
                for number in closed:
                    self.close_run(number)
            finally:
                _set_running_loop(running)

    def begin(self, work: tuple[Any, ...], played: list[Any]) -> None:
        number = work[1]
        info = loads(work[2])
        kind = info["kind"]
        workflow = self.workflows.get((kind, info["version"])) or self.workflows[kind, None]
        run = Run(self.bridge, self.turns, self.steps, number, workflow, info)
        self.runs[number] = run
        self.play(run, work, played)

    def play(self, run: Run, work: tuple[Any, ...], played: list[Any]) -> None:
        """Plays one activation: the event, and then the code to quiescence."""
        turns = self.turns
        turns.run = run
        run.now_ms = work[-1]
        try:
            if work[0] == ANSWER:
                run.answer(work[2], work[3], work[4])
            elif work[0] == START:
                self.begin_code(run, work[3])
            else:
                run.answer_update(work[2], work[3], loads(work[4]))
        except Stopped:
            run.is_stopped = True
        turns.play(run)
        played.append((run.number, self.end_of(run)))

    def begin_code(self, run: Run, input: str) -> None:
        workflow = run.workflow
        try:
            code = workflow.call(AgentCtx(run) if workflow.is_agent else Ctx(run), loads(input))
        except Exception as error:  # the input does not have the annotated type
            code = raised(error)
        run.begin(code)

    def end_of(self, run: Run) -> tuple[bool, str] | None:
        """Returns how the code of a run ended. Apart, because frames of `play` are in tracebacks and must not keep the task."""
        if run.task is not None and not run.task.done():
            return None
        self.turns.run = run
        try:
            return run.end()
        finally:
            self.turns.run = None

    def close_run(self, number: int) -> None:
        run = self.runs.pop(number, None)
        if run is not None:
            self.turns.run = run
            # Code that is unwound where it waits cannot end its context managers; it continues elsewhere, or later.
            hook, sys.unraisablehook = sys.unraisablehook, ignore_unraisable
            try:
                run.close()
            finally:
                sys.unraisablehook = hook
                self.turns.run = None
                self.turns.ready.clear()

    def reply(self, work: tuple[Any, ...]) -> None:
        _, request, is_ok, text = work
        future = self.replies.pop(request, None)
        stream = self.streams.pop(request, None)
        if future is not None and not future.done():
            if is_ok:
                future.set_result(text)
            else:
                future.set_exception(error_of(text))
        if stream is not None:
            stream.wake()

    # ---- what runs on the user's loop ----

    def start(self, work: tuple[Any, ...]) -> None:
        tag = work[0]
        if tag == STEP:
            self.repeat_step(*work[1:])
        elif tag == TASK:
            self.start_task(*work[1:])
        elif tag == CANCEL:
            self.cancel_job(work[1])
        elif tag == QUERY:
            self.answer_query(*work[1:])
        elif tag == ENDED:
            self.end()

    def start_steps(self) -> None:
        steps, self.steps[:] = self.steps[:], ()
        for call, info in steps:
            if call.function is None:  # dropped in the activation that started it
                self.finish(info[0], False, '{"message":"the call was dropped"}')
            else:
                self.start_step(info, call.function, call.args)

    def repeat_step(self, number: int, is_undo: bool, function: int, info: StepInfo) -> None:
        """Starts a later attempt of a step, or a compensation."""
        run = self.runs.get(number)
        found = None
        if run is not None and is_undo:
            found = run.extras.undos.get(function) if run.extras else None
        elif run is not None:
            call = run.calls.get(function)
            if call is not None and call.function is not None:
                found = call.function, call.args
        if found is None:
            self.finish(info[0], False, '{"message":"the code no longer has this step"}')
        else:
            self.start_step(info, *found)

    def start_step(self, info: StepInfo, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        job = info[0]
        if is_async(function):
            self.jobs[job] = self.loop.create_task(self.run_async(job, info, function, args))
        else:
            self.in_thread(job, info, function, args)

    def start_task(self, job: int, kind: str, input: str, info: str) -> None:
        details = loads(info)
        agent = details.get("agent")
        task = self.tasks.get(kind) if agent is None else self.tools.get((agent, kind))
        if task is None:
            self.finish(job, False, f'{{"message":"no task {kind} is registered","retryable":true}}')
            return
        ctx = TaskCtx(self.bridge, job, details)
        if task.is_async:
            self.jobs[job] = self.loop.create_task(self.run_async(job, None, task.call, (ctx, loads(input))))
        else:
            self.in_thread(job, None, task.call, (ctx, loads(input)))

    async def run_async(self, job: int, info: StepInfo | None, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        CURRENT.set(info)
        try:
            result = encode(await function(*args))
            is_ok = True
        except ValueInvalid as error:
            result, is_ok = failure_json(named_result(error, info)), False
        except asyncio.CancelledError as error:
            if job not in self.jobs:
                return  # canceled by the bridge: the result is not needed
            task = asyncio.current_task()
            if self.loop.is_closed() or getattr(task, "cancelling", lambda: 1)() > 0:
                # The event loop ends. The step has no result, and runs again at the next start.
                self.jobs.pop(job, None)
                raise
            result, is_ok = failure_json(error), False
        except Exception as error:
            result, is_ok = failure_json(error), False
            # The traceback has this frame, and this frame the error.
            error.__traceback__ = None
        self.finish(job, is_ok, result)

    def finish(self, job: int, is_ok: bool, result: str) -> None:
        """Reports a result, together with the others of this turn of the event loop."""
        self.jobs.pop(job, None)
        self.finished.append((job, is_ok, result))
        if not self.jobs:  # the last one: nothing to wait for
            self.flush()
        elif len(self.finished) == 1:
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        if self.finished:
            finished, self.finished = self.finished, []
            self.bridge.finish(finished)

    def in_thread(self, job: int, info: StepInfo | None, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.executor is None:
            self.executor = ThreadPoolExecutor(self.max_threads, thread_name_prefix="onward")
        running = self.jobs[job] = ThreadJob()  # before the start: the thread may end before `submit` returns
        try:
            running.future = self.executor.submit(self.run_plain, job, info, function, args)
        except RuntimeError:  # the interpreter is shutting down: the step runs at the next start
            LOG.debug("the thread pool is closed")

    def run_plain(self, job: int, info: StepInfo | None, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Calls a plain function in a thread of the pool."""
        token = CURRENT.set(info)
        try:
            result = function(*args)
            if isinstance(result, Coroutine):  # of `lambda: fetch(..)`
                if self.loop.is_closed():  # the step runs again at the next start
                    result.close()
                else:
                    self.loop.call_soon_threadsafe(self.await_result, job, info, result)
                return
            text, is_ok = encode(result), True
        except ValueInvalid as error:
            text, is_ok = failure_json(named_result(error, info)), False
        except (SystemExit, KeyboardInterrupt) as error:
            text, is_ok = failure_json(error), False
        except Exception as error:
            text, is_ok = failure_json(error), False
            error.__traceback__ = None
        finally:
            CURRENT.reset(token)
        self.jobs.pop(job, None)
        self.bridge.finish([(job, is_ok, text)])

    def await_result(self, job: int, info: StepInfo | None, code: Coroutine[Any, Any, Any]) -> None:
        async def result() -> Any:
            return await code

        self.jobs[job] = self.loop.create_task(self.run_async(job, info, result, ()))

    def cancel_job(self, job: int) -> None:
        running = self.jobs.pop(job, None)
        if running is not None:
            running.cancel()

    def answer_query(self, query: int, number: int, name: str, input: str) -> None:
        run = self.runs.get(number)
        handler = run.extras.queries.get(name) if run is not None and run.extras else None
        if handler is None:
            self.bridge.answer_query(query, None)
            return
        try:
            answer = True, encode(call_handler(handler, loads(input)))
        except Exception as error:
            answer = False, failure_json(error)
        self.bridge.answer_query(query, answer)

    # ---- requests ----

    def check_loop(self) -> None:
        if _get_running_loop() is not self.loop:
            hint = "use `onward` in the event loop in which it was opened; from a thread, `asyncio.run_coroutine_threadsafe`"
            raise OnwardError("this is not the event loop of `onward`", code="context_misused", hint=hint, status=400)

    async def request(self, verb: str, args: str) -> Any:
        """Makes a request and returns its reply."""
        return loads(await self.request_text(verb, args))

    async def request_text(self, verb: str, args: str) -> str:
        self.check_loop()
        if self.ended.done():
            raise OnwardClosed()
        number = self.bridge.request(verb, args)
        future: asyncio.Future[str] = self.loop.create_future()
        self.replies[number] = future
        try:
            return await future
        except asyncio.CancelledError:
            if self.replies.pop(number, None) is not None:
                self.bridge.abandon(number)
            raise

    async def stream(self, verb: str, args: str) -> AsyncIterator[Any]:
        """Makes a request that streams, and yields its items."""
        self.check_loop()
        if self.ended.done():
            raise OnwardClosed()
        number = self.bridge.request(verb, args)
        reply: asyncio.Future[str] = self.loop.create_future()
        stream = Stream()
        self.replies[number] = reply
        self.streams[number] = stream
        try:
            while True:
                items, stream.items = stream.items, []
                for item in items:
                    yield loads(item)
                if stream.items:
                    continue
                if reply.done():
                    reply.result()
                    return
                stream.ready = self.loop.create_future()
                await stream.ready
        finally:
            self.streams.pop(number, None)
            if self.replies.pop(number, None) is not None:
                self.bridge.abandon(number)

    # ---- the end ----

    async def close(self, timeout_ms: int) -> None:
        """Shuts the bridge down and waits until it ended."""
        if not self.is_closing:
            self.is_closing = True
            self.bridge.shut_down(timeout_ms)
        await asyncio.shield(self.ended)

    def end(self) -> None:
        """Frees what is left after the last message."""
        if self.ended.done():
            return
        self.ended.set_result(None)
        self.loop.remove_reader(self.bridge.fd)
        for number in list(self.runs):
            self.close_run(number)
        for job in list(self.jobs):
            self.cancel_job(job)
        for future in self.replies.values():
            if not future.done():
                future.set_exception(OnwardClosed())
        for stream in self.streams.values():
            stream.wake()
        self.replies.clear()
        if self.executor is not None:
            self.executor.shutdown(wait=False, cancel_futures=True)


async def raised(error: Exception) -> None:
    raise error


def ignore_unraisable(_: Any) -> None:
    pass


def named_result(error: ValueInvalid, info: StepInfo | None) -> ValueInvalid:
    """Names a result that is not JSON, if the error is about it."""
    if error.what != "the value":
        return error
    return error.of("the result of the task" if info is None else f"the result of step `{info[1]}`")


class OnwardClosed(ShutDown):
    """The `Onward` was closed; its code is `shut_down`."""

    def __init__(self) -> None:
        super().__init__("this `Onward` is closed", code="shut_down", hint="open another one", status=503)
