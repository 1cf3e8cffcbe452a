"""The event loop of workflow code: deterministic, and without I/O.

One loop of a host serves all of its runs. The host plays one activation at a time, to quiescence: meanwhile `ctx` is the run,
and `ready` has the callbacks of this run only. Futures and tasks of asyncio work with it; what needs the outside is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ._errors import ContextMisused, Stopped

if TYPE_CHECKING:
    from ._run import Run

T = TypeVar("T")

#: Callbacks of one activation before the run is paused because its code never waits.
CALLBACKS_MAX = 1_000_000


class Handle:
    """A callback in the ready list."""

    __slots__ = ("args", "callback", "context")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        # An empty context is false.
        self.context = contextvars.copy_context() if context is None else context

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None


if TYPE_CHECKING:
    from collections.abc import Coroutine

    class _Future(asyncio.Future[T], Coroutine[Any, Any, T]):
        """For type checkers: `TaskGroup.create_task` of workflow code takes calls, too."""

        def send(self, value: Any, /) -> Any: ...
        def throw(self, *error: Any) -> Any: ...
        def close(self) -> None: ...

    #: For type checkers: methods have wider types than those of asyncio, and `refused` defines the others.
    _Loop = Any

else:
    _Future = asyncio.Future
    _Loop = asyncio.AbstractEventLoop


class Call(_Future[T]):
    """A call of `ctx` that is under way: await it, or pass it to `asyncio.gather`, `wait`, `wait_for` or a `TaskGroup`.

    The call was made when the method of `ctx` was called. `cancel()` drops it: a timer is stopped, an approval withdrawn, the
    result of a step ignored; tasks and children continue.
    """

    __slots__ = ("args", "convert", "function", "input", "number", "run")

    #: Of a step: the option `input`, if there are middlewares.
    input: Any
    run: Run
    number: int
    convert: Callable[[Any], Any] | None
    #: Of a step: the function and its arguments, until the result is there.
    function: Callable[..., Any] | None
    args: tuple[Any, ...]

    def __hash__(self) -> int:
        # The order of a set must be the same in every replay, and here it is that of the calls.
        return self.number

    def cancel(self, msg: Any = None) -> bool:
        run = self.run
        if run.calls.pop(self.number, None) is not None:
            self.function = None
            run.drop(self.number)
        return super().cancel(msg)

    async def cancel_work(self) -> str:
        """Cancels the task or child itself, and returns whether that came in time (`canceled`, `too_late`, ..)."""
        return str(self.run.value("cancel", f'{{"call":{self.number}}}'))


class TurnTask(asyncio.Task):  # type: ignore[type-arg]
    """A task that workflow code created."""

    __slots__ = ("number", "run")

    def __init__(self, coro: Any, *, run: Run, number: int, **options: Any) -> None:
        self.run = run
        self.number = number
        super().__init__(coro, **options)

        # Asyncio's set of all tasks is for loops that cancel what is left; tasks of many runs have the same hash in it.
        asyncio.tasks._unregister_task(self)

    def __hash__(self) -> int:
        return self.number


class Timer:
    """What `call_later` and `call_at` return: a durable timer, and the callback that it calls."""

    __slots__ = ("args", "callback", "call", "context", "is_cancelled", "run", "_when")

    def __init__(self, run: Run, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Any) -> None:
        self.run = run
        self._when = when
        self.callback = callback
        self.args = args
        # An empty context is false.
        self.context = contextvars.copy_context() if context is None else context
        self.is_cancelled = False
        self.arm()

    def arm(self) -> None:
        self.call = self.run.sleep_until_ms(round(self._when * 1000))
        self.call.add_done_callback(self.fire, context=self.context)

    def fire(self, call: Call[None]) -> None:
        if self.is_cancelled or self.run.is_closed:
            return
        if call.cancelled():
            # A request to cancel the run interrupted all waits; this one is not a wait of the code.
            self.arm()
        else:
            self.callback(*self.args)

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.is_cancelled = True
        if not self.run.is_closed:
            self.call.cancel()

    def cancelled(self) -> bool:
        return self.is_cancelled


async def awaited(future: asyncio.Future[T]) -> T:
    return await future


class TurnLoop(_Loop):  # type: ignore[misc]
    """The loop that workflow code sees as the running loop."""

    def __init__(self) -> None:
        self.ready: deque[Handle] = deque()
        self.run: Run | None = None

    # ---- playing ----

    def play(self, run: Run) -> None:
        """Executes callbacks of a run until none is ready. Afterwards its code waits, or has ended."""
        ready = self.ready
        self.run = run
        count = 0
        handle: Handle | None
        try:
            while ready:
                handle = ready.popleft()
                callback = handle.callback
                if callback is None:
                    continue
                try:
                    handle.context.run(callback, *handle.args)
                except (Exception, Stopped) as error:
                    self.call_exception_handler({"message": "a callback failed", "exception": error})
                count += 1
                if count == CALLBACKS_MAX:
                    run.misuse(f"the code made {CALLBACKS_MAX} turns of the event loop without waiting for anything of `ctx`")
        except Stopped:
            run.is_stopped = True
        finally:
            self.run = None
            ready.clear()
            # Tracebacks of the code have this frame: without this, a handle, its future and the traceback are a cycle.
            handle = callback = None

    def end_generator(self, generator: Any) -> None:
        """Ends an asynchronous generator that nothing refers to any more. That of a closed run is dropped as it is."""
        if self.run is not None and not self.run.is_closed:
            with contextlib.suppress(BaseException):
                generator.aclose().send(None)

    def current(self) -> Run:
        run = self.run
        if run is None:
            hint = "resolve futures of workflow code with signals or promises"
            raise ContextMisused("an event loop of workflow code was used outside of a run", hint=hint)
        return run

    # ---- what asyncio's futures, tasks and combinators use ----

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        if self.run is None:
            self.current()
        handle = Handle(callback, args, context)
        self.ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        run = self.current()
        if getattr(callback, "__name__", "") == "_set_result_unless_cancelled":
            run.misuse("`asyncio.sleep` does not survive a restart: use `await ctx.sleep(..)`")
        return Timer(run, when, callback, args, context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def time(self) -> float:
        run = self.run
        return 0.0 if run is None else run.now_ms / 1000

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None, **options: Any) -> Any:
        run = self.current()
        if asyncio.isfuture(coro):
            coro = awaited(coro)
        if context is not None and sys.version_info >= (3, 11):
            options["context"] = context
        options.pop("eager_start", None)
        task = TurnTask(coro, run=run, number=run.next_task(), loop=self, name=name or "", **options)
        run.add_task(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Records nothing: what code leaves behind is seen again in every replay, and is not an error."""

    default_exception_handler = call_exception_handler

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    def get_task_factory(self) -> None:
        return None


STEP = "do this in a step: `await ctx.step(name, function, ..)`"

#: Methods of event loops that workflow code must not use, and what to use instead.
REFUSED = {
    STEP: (
        "run_in_executor getaddrinfo getnameinfo create_connection create_server create_unix_connection create_unix_server "
        "create_datagram_endpoint start_tls sendfile connect_accepted_socket connect_read_pipe connect_write_pipe "
        "subprocess_exec subprocess_shell add_reader remove_reader add_writer remove_writer sock_recv sock_recv_into "
        "sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto sock_connect sock_accept sock_sendfile"
    ),
    "send a signal to the run instead": "call_soon_threadsafe add_signal_handler remove_signal_handler",
    "the worker runs this loop": (
        "run_forever run_until_complete stop close shutdown_asyncgens shutdown_default_executor set_default_executor "
        "set_exception_handler get_exception_handler set_task_factory"
    ),
}


def refused(name: str, replacement: str) -> Callable[..., Any]:
    def refuse(self: TurnLoop, *args: Any, **options: Any) -> Any:
        message = f"workflow code cannot use the event loop for `{name}`: {replacement}"
        if self.run is not None:
            self.run.misuse(message)
        raise ContextMisused(message)

    refuse.__name__ = name
    return refuse


for _replacement, _names in REFUSED.items():
    for _name in _names.split():
        setattr(TurnLoop, _name, refused(_name, _replacement))
