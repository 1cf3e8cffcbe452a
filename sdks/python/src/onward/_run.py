"""The code object of one run: its task, its open calls, and what it registered."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import traceback
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ._errors import ContextMisused, Failure, OnwardError, Stopped, ValueInvalid, error_of, invalid
from ._json import Convert, Raw, arguments, encode, failure_json, loads, raw, text
from ._loop import Call, TurnLoop, TurnTask
from ._native import Bridge, NativeError

if TYPE_CHECKING:
    from ._definitions import Workflow
    from .middleware import Middleware

#: A step that may start: the call, and (job, name, attempt, idempotency key, trace).
StepJob = tuple[Call[Any], tuple[int, str, int, str, "str | None"]]

#: The arguments of `step` calls that have a name only, and of `recv`.
NAMED: dict[str, str] = {}


def named(verb: str, name: str) -> str:
    """Returns `{"<verb>":"<name>"}`, from a cache of limited size."""
    if not isinstance(name, str):
        hint = 'the name is the first argument: `ctx.step("charge", charge, item)`'
        raise invalid(f"a name is a text, not {name!r:.60}", hint)
    key = verb + name
    found = NAMED.get(key)
    if found is None:
        found = "{" + f'"{verb}":{text(name)}' + "}"
        if len(NAMED) < 4096:
            NAMED[key] = found
    return found


class Run:
    """A run whose code is in memory. Users call it through `Ctx`."""

    __slots__ = (
        "bridge",
        "calls",
        "extras",
        "generation",
        "id",
        "cancel_failure",
        "is_cancel_delivered",
        "is_closed",
        "is_stopped",
        "loop",
        "middlewares",
        "nesting",
        "now_ms",
        "number",
        "parent_id",
        "steps",
        "task",
        "tasks",
        "tasks_made",
        "workflow",
    )

    def __init__(
        self,
        bridge: Bridge,
        loop: TurnLoop,
        steps: list[StepJob],
        number: int,
        workflow: Workflow[Any, Any],
        info: dict[str, Any],
        middlewares: list[Middleware],
    ) -> None:
        self.bridge = bridge
        self.middlewares = middlewares
        self.loop = loop
        #: Steps that started in this activation; the host takes them.
        self.steps = steps
        self.number = number
        self.workflow = workflow
        self.id: str = info["id"]
        self.generation: int = info["generation"]
        self.nesting: int = info["nesting"]
        self.parent_id: str | None = info["parent"]
        self.now_ms = 0
        self.calls: dict[int, Call[Any]] = {}
        self.task: asyncio.Task[Any] | None = None
        self.tasks: list[TurnTask] | None = None
        self.tasks_made = 0
        #: Handlers of queries, updates and compensations, if there are any.
        self.extras: Extras | None = None
        self.is_cancel_delivered = False
        #: How the run ends if its code throws the cancellation on.
        self.cancel_failure = '{"message":"canceled","code":"canceled","retryable":false}'
        self.is_stopped = False
        self.is_closed = False

    # ---- calls ----

    def make(self, verb: str, args: str) -> tuple[Any, ...]:
        """Makes a call. Fails outside of an activation of this run."""
        if self.loop.run is not self or _get_running_loop() is not self.loop:
            raise self.misused(verb)
        if self.is_stopped:
            raise Stopped
        try:
            return self.bridge.call(self.number, verb, args)
        except NativeError as error:
            raise error_of(error.args[0]) from None
        except Stopped:
            self.is_stopped = True
            raise

    def misused(self, verb: str) -> OnwardError:
        problem = "after the code of the run ended" if self.is_closed else "outside of the code of its run"
        message = f"run {self.id}: `{verb}` was called {problem}"
        hint = "`ctx` works in the workflow function and its tasks, not in steps, queries, threads or other event loops"
        return ContextMisused(message, hint=hint)

    def value(self, verb: str, args: str = "{}") -> Any:
        """Makes a call that does not wait and returns its reply."""
        return loads(self.make(verb, args)[1])

    def read(self, verb: str, args: str = "{}") -> Any:
        """Reads what may be read at any time."""
        try:
            return loads(self.bridge.call(self.number, verb, args)[1])
        except NativeError as error:
            raise error_of(error.args[0]) from None

    def wait(self, verb: str, args: str, convert: Convert = None, kind: type[Call[Any]] = Call) -> Any:
        """Makes a call that waits and returns its future."""
        called = self.make(verb, args)
        call = self.new_call(kind, called[1], convert)
        tag = called[0]
        if tag == 2:
            if called[2] != "{}":
                call.set_info(loads(called[2]))  # type: ignore[attr-defined]
            self.calls[call.number] = call
        elif tag == 1:
            self.deliver(call, called[2], called[3])
        else:
            raise AssertionError(f"`{verb}` does not wait")
        return call

    def begin_step(self, args: str, function: Callable[..., Any], parameters: tuple[Any, ...], convert: Convert) -> Call[Any]:
        """Makes the call of a step and queues its function."""
        called = self.make("step", args)
        call = self.new_call(Call, called[1], convert)
        if called[0] == 1:
            self.deliver(call, called[2], called[3])
            return call
        call.function = function
        call.args = parameters
        self.calls[call.number] = call
        if called[0] == 3:
            self.steps.append((call, called[2]))
        return call

    def new_call(self, kind: type[Call[Any]], number: int, convert: Convert) -> Call[Any]:
        call = kind(loop=self.loop)
        call.run = self
        call.number = number
        call.convert = convert
        call.function = None
        return call

    def drop(self, number: int) -> None:
        """Tells the bridge that the code no longer awaits a call."""
        if not self.is_closed and not self.is_stopped and self.loop.run is self:
            with contextlib.suppress(Stopped):
                self.make("drop", f'{{"call":{number}}}')

    def misuse(self, message: str) -> None:
        """Pauses the run with a message; raises `Stopped`."""
        self.make("misuse", arguments(message=message))
        raise AssertionError("a misuse stops the code")

    def sleep_until_ms(self, until_ms: int) -> Call[None]:
        call: Call[None] = self.wait("sleep", f'{{"until":{until_ms}}}')
        return call

    # ---- answers ----

    def answer(self, number: int, is_ok: bool, result: str) -> None:
        """Delivers the answer of a call to its future."""
        call = self.calls.pop(number, None)
        if call is not None:
            self.deliver(call, is_ok, result)

    def deliver(self, call: Call[Any], is_ok: bool, result: str) -> None:
        call.function = None
        if not is_ok:
            failure = Failure.from_json(loads(result))
            if failure.code == "canceled" and self.read("is_canceled"):
                self.cancel_failure = result
                self.deliver_cancel(call)
            elif not call.done():
                call.set_exception(failure)
            return
        value = loads(result)
        if call.convert is not None:
            try:
                value = call.convert(value)
            except Exception as error:
                call.set_exception(error)
                return
        call.set_result(value)

    def deliver_cancel(self, call: Call[Any]) -> None:
        """Raises `CancelledError` in the code, as `Task.cancel` does: through tasks, groups and timeouts."""
        if not self.is_cancel_delivered and self.task is not None and not self.task.done():
            self.is_cancel_delivered = True
            if asyncio.current_task(self.loop) is not self.task:
                self.task.cancel()
        if not call.done():
            asyncio.Future.cancel(call)

    # ---- queries and updates ----

    def handlers(self) -> Extras:
        if self.extras is None:
            self.extras = Extras()
        return self.extras

    def answer_update(self, update: str, name: str, input: Any) -> None:
        """Calls the handler of an update and records its answer."""
        handler = self.handlers().updates.get(name)
        if handler is None:
            return
        try:
            output = call_handler(handler, input)
            if isinstance(output, Coroutine):
                self.value("update_accept", arguments(update=update))
                task = self.loop.create_task(output, name=f"update {name}")
                task.add_done_callback(functools.partial(self.finish_update, update))
                return
            answer = {"result": raw(output)}
        except Stopped:
            raise
        except BaseException as error:
            if ends_process(error):
                raise
            answer = {"failure": Raw(failure_json(error))}
        self.value("update_answer", arguments(update=update, **answer))

    def finish_update(self, update: str, task: asyncio.Task[Any]) -> None:
        """Records the answer of a handler that awaited calls."""
        if self.is_closed or self.is_stopped or self.loop.run is not self:
            return
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Stopped):
            return
        if task.cancelled():
            answer = {"failure": Raw(self.cancel_failure)}
        elif error is not None:
            answer = {"failure": Raw(failure_json(error))}
        else:
            try:
                answer = {"result": raw(task.result())}
            except Exception as refused:
                answer = {"failure": Raw(failure_json(refused))}
        self.value("update_answer", arguments(update=update, **answer))

    # ---- tasks, begin and end ----

    def begin(self, code: Coroutine[Any, Any, Any]) -> None:
        self.task = asyncio.Task(code, loop=self.loop, name=self.workflow.name)
        # The set of all tasks of a process is for loops that cancel what is left; it takes 200 bytes for each.
        asyncio.tasks._unregister_task(self.task)

    def next_task(self) -> int:
        self.tasks_made += 1
        return self.tasks_made

    def add_task(self, task: TurnTask) -> None:
        """Remembers a task of the code, to close it with the run."""
        if self.tasks is None:
            self.tasks = []
        elif len(self.tasks) >= 64 and not len(self.tasks) & len(self.tasks) - 1:
            self.tasks = [task for task in self.tasks if not task.done()]
        self.tasks.append(task)

    def end(self) -> tuple[bool, str] | None:
        """Returns how the code ended, or `None` while it waits or must stop."""
        task = self.task
        if self.is_stopped or task is None or not task.done():
            return None
        if task.cancelled():
            return False, self.cancel_failure
        error = task.exception()
        if error is None:
            try:
                return True, encode(task.result())
            except ValueInvalid as refused:
                return False, failure_json(refused.of(f"the result of workflow `{self.workflow.name}`"))
            except Exception as failed:  # of a property of the result, for example
                return False, failure_json(failed)
        if isinstance(error, RuntimeError) and "attached to a different loop" in str(error):
            with contextlib.suppress(Stopped):
                self.make("misuse", arguments(message=FOREIGN_AWAIT.format(name=self.workflow.name)))
            return None
        if isinstance(error, Stopped):
            return None
        return False, failure_json(error)

    def close(self) -> None:
        """Unwinds the code and breaks the reference cycles of coroutines, tasks and futures."""
        self.is_closed = True
        tasks: list[asyncio.Task[Any]] = list(self.tasks or ())
        if self.task is not None:
            tasks.append(self.task)
        for task in tasks:
            close_task(task)
        for call in self.calls.values():
            call.function = None
            if not call.done():
                asyncio.Future.cancel(call)
        self.calls.clear()
        self.task = self.tasks = self.extras = None


FOREIGN_AWAIT = (
    "the code of {name} awaited a future of another event loop: await only calls of `ctx`, and do I/O in steps: "
    "`await ctx.step(name, function, ..)`"
)


def close_task(task: asyncio.Task[Any]) -> None:
    if task.done():
        # The frames of a traceback have the local variables of the code, and these the run.
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                traceback.clear_frames(error.__traceback__)
                error.__traceback__ = None
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    code = task.get_coro()
    # Code may await in `finally`; each attempt ends one more of these.
    for _ in range(100):
        try:
            code.close()
            return
        except RuntimeError as error:
            if "ignored GeneratorExit" not in str(error):
                return
        except BaseException:
            return


class Extras:
    """Handlers of a run."""

    __slots__ = ("draws", "queries", "undos", "updates")

    def __init__(self) -> None:
        #: How often each line of a framework has drawn a random number.
        self.draws: dict[str, int] = {}
        self.queries: dict[str, Handler] = {}
        self.updates: dict[str, Handler] = {}
        self.undos: dict[int, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


#: The function of a handler, and what converts its input.
Handler = tuple[Callable[..., Any], Convert, bool]


def call_handler(handler: Handler, input: Any) -> Any:
    """Calls a handler. What it sets in context variables is lost: the next replay could not see it."""
    function, convert, takes_input = handler
    values = (input if convert is None else convert(input),) if takes_input else ()
    return contextvars.copy_context().run(function, *values)


def ends_process(error: BaseException) -> bool:
    """Tells whether an exception comes from Ctrl-C or `sys.exit`, possibly in the handler of a signal, and is none of the code."""
    return isinstance(error, (KeyboardInterrupt, SystemExit))
