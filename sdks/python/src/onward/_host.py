"""The host: plays activations, runs functions of steps and tasks, and delivers replies, all on one event loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
from asyncio import _get_running_loop, _set_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from . import _guards
from ._ctx import Ctx
from ._definitions import Task, Workflow, is_async
from ._errors import ContextMisused, Failure, OnwardError, ShutDown, Stopped, ValueInvalid, error_of
from ._json import arguments, encode, failure_json, loads, raw
from ._loop import TurnLoop
from ._native import Bridge
from ._run import Run, StepJob, call_handler, ends_process
from ._tasks import CURRENT, TaskCtx
from .agents import AgentCtx, ToolTable
from .middleware import AttemptCall, AttemptKind, Middleware, RunCall, chain

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


if sys.version_info >= (3, 11):
    JobTask = None
else:

    class JobTask(asyncio.Task):  # type: ignore[type-arg]
        """A task that counts requests to cancel it, as every task does since Python 3.11."""

        requests = 0

        def cancel(self, msg: Any = None) -> bool:
            self.requests += 1
            return super().cancel(msg)

        def cancelling(self) -> int:
            return self.requests


class LoopJob:
    """An async function on the event loop."""

    __slots__ = ("task",)

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


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
        middlewares: list[Middleware],
    ) -> None:
        self.middlewares = middlewares
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
        self.jobs: dict[int, LoopJob | ThreadJob] = {}
        self.finished: list[tuple[int, bool, str]] = []
        self.replies: dict[int, asyncio.Future[str]] = {}
        self.streams: dict[int, Stream] = {}
        self.max_threads = max_threads
        self.executor: ThreadPoolExecutor | None = None
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.is_closing = False
        #: Whether Ctrl-C or `sys.exit` ended code of a run or step, which has no result and is repeated at the next start.
        self.is_interrupted = False
        _guards.install()
        self.loop.add_reader(bridge.fd, self.pump)
        self.loop.call_soon(self.pump)

    # ---- the pump ----

    def pump(self) -> None:
        """Takes a batch of messages and plays it."""
        batch = self.bridge.take(BATCH_MAX)
        if batch:
            try:
                self.play_batch(batch)
            except (KeyboardInterrupt, SystemExit):
                self.is_interrupted = True
                raise
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
                except Exception as error:  # an error of this package must not lose the other messages
                    LOG.exception("a message of the engine was not processed: %r", work[:3])
                    if work[0] in (START, ANSWER, UPDATE):
                        self.pause(work[1], error, played)
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
        run = Run(self.bridge, self.turns, self.steps, number, workflow, info, self.middlewares)
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

    def pause(self, number: int, error: Exception, played: list[Any]) -> None:
        """Pauses a run whose activation failed in this package: without an answer it would wait for ever."""
        run = self.runs.get(number)
        if run is None:
            return
        self.turns.run = run
        try:
            run.misuse(f"the package `onward` failed with {type(error).__name__}: {error}")
        except (OnwardError, Stopped):
            played.append((number, None))
        finally:
            self.turns.run = None

    def begin_code(self, run: Run, input: str) -> None:
        workflow = run.workflow
        try:
            ctx = AgentCtx(run) if workflow.is_agent else Ctx(run)
            code = around_run(workflow, ctx, loads(input)) if self.middlewares else workflow.call(ctx, loads(input))
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
                self.start_step(info, call.function, call.args, call.run, getattr(call, "input", None))

    def repeat_step(self, number: int, is_undo: bool, function: int, info: StepInfo) -> None:
        """Starts a later attempt of a step, or a compensation."""
        run = self.runs.get(number)
        found = input = None
        if run is not None and is_undo:
            found = run.extras.undos.get(function) if run.extras else None
        elif run is not None:
            call = run.calls.get(function)
            if call is not None and call.function is not None:
                found = call.function, call.args
                input = getattr(call, "input", None)
        if found is None or run is None:
            self.finish(info[0], False, '{"message":"the code no longer has this step"}')
        else:
            self.start_step(info, *found, run, input)

    def start_step(self, info: StepInfo, function: Callable[..., Any], args: tuple[Any, ...], run: Run, input: Any) -> None:
        job = info[0]
        if self.middlewares:
            call = AttemptCall("step", info[1], run.id, info[2], info[3], input)
            self.in_loop(job, info, self.around, (call, lambda _: self.called(function, args)))
        elif is_async(function):
            self.in_loop(job, info, function, args)
        else:
            self.in_thread(job, info, function, args)

    def start_task(self, job: int, kind: str, input: str, info: str) -> None:
        details = loads(info)
        if details.get("is_model_call"):
            self.start_model_call(job, kind, input, details)
            return
        agent = details.get("agent")
        task = self.tasks.get(kind) if agent is None else self.tools.get((agent, kind))
        if task is None:
            self.finish(job, False, f'{{"message":"no task {kind} is registered","retryable":true}}')
            return
        ctx = TaskCtx(self.bridge, job, details)
        if self.middlewares and not details.get("is_scripted"):
            self.start_surrounded(job, "task" if agent is None else "tool", kind, ctx, task, loads(input))
        elif task.is_async:
            self.in_loop(job, None, task.call, (ctx, loads(input)))
        else:
            self.in_thread(job, None, task.call, (ctx, loads(input)))

    # ---- middlewares ----

    def start_surrounded(self, job: int, what: AttemptKind, kind: str, ctx: TaskCtx, task: Any, input: Any) -> None:
        call = AttemptCall(what, kind, ctx.run_id, ctx.attempt, ctx.idempotency_key, input, ctx)

        def function(call: AttemptCall) -> Awaitable[Any]:
            return self.called(task.call, (ctx, call.input), task.is_async)

        self.in_loop(job, None, self.around, (call, function))

    def start_model_call(self, job: int, name: str, input: str, info: dict[str, Any]) -> None:
        """Starts the middlewares of a model call, which the bridge makes."""
        call = AttemptCall("model_call", name, info["run"], info["attempt"], info["idempotency_key"], loads(input))

        async def function(call: AttemptCall) -> Any:
            reply = await self.request("attempt_next", arguments(job=job, input=raw(call.input), mute=call._is_muted))
            if "failure" in reply:
                raise Failure.from_json(reply["failure"])
            return reply["value"]

        self.in_loop(job, None, self.around, (call, function))

    async def around(self, call: AttemptCall, function: Callable[[AttemptCall], Awaitable[Any]]) -> Any:
        return await chain([found.attempt for found in self.middlewares], function)(call)

    async def called(self, function: Callable[..., Any], args: tuple[Any, ...], is_loop: bool | None = None) -> Any:
        """Calls the function of a step or task: an async one here, a plain one in the thread pool."""
        if is_async(function) if is_loop is None else is_loop:
            return await function(*args)
        context = contextvars.copy_context()

        def plain() -> Any:
            try:
                return context.run(function, *args)
            except (KeyboardInterrupt, SystemExit) as error:  # of the function, not of this process
                raise Failure.from_json(loads(failure_json(error))) from None

        result = await self.loop.run_in_executor(self.threads(), plain)
        return await result if isinstance(result, Coroutine) else result  # of `lambda: fetch(..)`

    def in_loop(self, job: int, info: StepInfo | None, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        running = self.jobs[job] = LoopJob()  # before the start: an eager task may end before `create_task` returns
        code = self.run_async(job, info, function, args)
        running.task = self.loop.create_task(code) if JobTask is None else JobTask(code, loop=self.loop)

    async def run_async(self, job: int, info: StepInfo | None, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        CURRENT.set(info)
        try:
            result = encode(await function(*args))
            is_ok = True
        except ValueInvalid as error:
            result, is_ok = failure_json(named_result(error, info)), False
        except (KeyboardInterrupt, SystemExit):
            self.jobs.pop(job, None)
            self.is_interrupted = True
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                if job not in self.jobs:
                    return  # canceled by the bridge: the result is not needed
                task = asyncio.current_task()
                if self.loop.is_closed() or getattr(task, "cancelling", lambda: 1)() > 0:
                    # The event loop ends. The step has no result, and runs again at the next start.
                    self.jobs.pop(job, None)
                    raise
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
        running = self.jobs[job] = ThreadJob()  # before the start: the thread may end before `submit` returns
        try:
            running.future = self.threads().submit(self.run_plain, job, info, function, args)
        except RuntimeError:  # the interpreter is shutting down: the step runs at the next start
            self.jobs.pop(job, None)
            LOG.debug("the thread pool is closed")

    def threads(self) -> ThreadPoolExecutor:
        if self.executor is None:
            self.executor = ThreadPoolExecutor(self.max_threads, thread_name_prefix="onward")
        return self.executor

    def run_plain(self, job: int, info: StepInfo | None, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Calls a plain function in a thread of the pool."""
        token = CURRENT.set(info)
        try:
            result = function(*args)
            if isinstance(result, Coroutine):  # of `lambda: fetch(..)`
                try:
                    self.loop.call_soon_threadsafe(self.await_result, job, info, result)
                except RuntimeError:  # the event loop is closed: the step runs again at the next start
                    self.jobs.pop(job, None)
                    result.close()
                return
            text, is_ok = encode(result), True
        except ValueInvalid as error:
            text, is_ok = failure_json(named_result(error, info)), False
        except BaseException as error:
            text, is_ok = failure_json(error), False
            error.__traceback__ = None
        finally:
            CURRENT.reset(token)
        self.jobs.pop(job, None)
        self.bridge.finish([(job, is_ok, text)])

    def await_result(self, job: int, info: StepInfo | None, code: Coroutine[Any, Any, Any]) -> None:
        if job not in self.jobs:  # canceled meanwhile
            code.close()
            return

        async def result() -> Any:
            return await code

        self.in_loop(job, info, result, ())

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
        except BaseException as error:
            if ends_process(error):
                raise
            answer = False, failure_json(error)
        self.bridge.answer_query(query, answer)

    # ---- requests ----

    def check_loop(self) -> None:
        running = _get_running_loop()
        if running is not self.loop:
            hint = "use `onward` in the event loop in which it was opened; from a thread, `asyncio.run_coroutine_threadsafe`"
            if isinstance(running, TurnLoop):
                hint = "workflow code starts runs with `ctx.child(..)` and reads others in steps: `ctx.step(name, function, ..)`"
            raise ContextMisused("this is not the event loop of `onward`", hint=hint)

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
        self.check_loop()
        if not self.is_closing:
            self.is_closing = True
            self.bridge.shut_down(0 if self.is_interrupted else timeout_ms)
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


async def around_run(workflow: Workflow[Any, Any], ctx: Ctx, input: Any) -> Any:
    """Runs the code of a run inside of its middlewares."""

    async def code(call: RunCall) -> Any:
        return await workflow.call(call.ctx, call.input)

    methods = [found.run for found in ctx._run.middlewares]
    return await chain(methods, code)(RunCall(ctx, workflow.name, input))


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
        super().__init__("this `Onward` is closed", hint="open another one")
