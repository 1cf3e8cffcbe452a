"""`Onward`, and handles of runs and tasks."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, overload

from ._ctx import TaskOptions, attribute, convert_of, input_of, name_of, task_arguments
from ._definitions import Task, Workflow
from ._errors import ContextMisused, Failure, OnwardError, error_of, invalid
from ._host import Host, OnwardClosed
from ._json import Convert, Raw, arguments, milliseconds, raw
from ._native import Bridge, NativeError
from ._schedules import ScheduleHandle, ScheduleOptions, ScheduleTimes, ScheduleView, Slot, put_arguments, slots_of, spec_of, time_of
from .agents import collect
from .middleware import Middleware, checked

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from typing_extensions import Self, Unpack

I = TypeVar("I")
O = TypeVar("O")


class StartOptions(TypedDict, total=False):
    """Options of a start."""

    id: str | None
    version: str | None
    #: Those by which runs are listed.
    attributes: dict[str, Any] | None
    budget: dict[str, Any] | None
    #: Begins the code at this time; the run exists before, keeps signals and can be canceled.
    at: datetime | None
    #: Begins the code this long after the start, instead of `at`.
    after: timedelta | float | None
    #: Begins the code when this queue lets the run in; it holds a slot until it ends.
    queue: str | None
    #: The key whose limits and share of the queue apply to the run.
    key: str | None
    #: Higher begins first; one level is worth a minute of waiting.
    priority: int | None
    #: Cancels the run after this time; time before `at` and while it is paused does not count.
    deadline: timedelta | float | None
    #: The W3C trace context of the caller.
    trace: str | None
    #: Sent with the start: `{"name", "value", "id"}`.
    signal: dict[str, Any] | None


class StandaloneTaskOptions(TaskOptions, total=False):
    """Options of a task without a workflow."""

    id: str | None


def unwrap(payload: Any) -> Any:
    """Returns the value of a payload, which the API writes as `{"json": value}`."""
    return payload["json"] if isinstance(payload, dict) and len(payload) == 1 and "json" in payload else payload


@dataclass(frozen=True)
class RunView:
    """The state of a run at one moment."""

    id: str
    kind: str
    #: `pending`, `running`, `waiting`, `paused`, `completed`, `failed`, `canceled` or `terminated`.
    status: str
    generation: int
    #: The version of the code that the run is pinned to.
    version: str | None
    input: Any
    #: The result of a completed run.
    output: Any
    #: The failure of a failed run.
    failure: Failure | None
    #: What the code set with `ctx.state`.
    state: dict[str, Any]
    attributes: dict[str, Any]
    #: What the code waits for: `kind`, `name`, `id`, `since`, `deadline`, ..
    awaiting: list[dict[str, Any]]
    #: Why the run is paused.
    pause: dict[str, Any] | None
    #: Everything that the API says.
    details: dict[str, Any]

    @classmethod
    def from_json(cls, view: dict[str, Any]) -> RunView:
        head = view["head"]
        outcome = view.get("outcome") or {}
        failure = next((found for name, found in outcome.items() if name.lower() in ("failed", "err")), None)
        return cls(
            id=head["key"]["id"],
            kind=head["kind"],
            status=head["status"],
            generation=head["generation"],
            version=head.get("version"),
            output=next((unwrap(found) for name, found in outcome.items() if name.lower() in ("completed", "ok")), None),
            failure=None if failure is None else Failure.from_json(failure),
            input=unwrap(view.get("input")),
            state={key: unwrap(value) for key, value in view.get("state", {}).items()},
            attributes={found["name"]: next(iter(found["value"].values())) for found in head.get("attributes", ())},
            awaiting=view.get("awaiting", []),
            pause=view.get("pause"),
            details=view,
        )


class RunHandle(Generic[O]):
    """A run, by its id. A handle is only a name: it costs nothing, and the run need not exist."""

    __slots__ = ("_convert", "_onward", "id")

    def __init__(self, onward: Onward, id: str, convert: Convert = None) -> None:
        self._onward = onward
        self.id = id
        self._convert = convert

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"

    async def _do(self, verb: str, **fields: Any) -> Any:
        return await self._onward.request(verb, run=self.id, **fields)

    async def result(self) -> O:
        """Waits until the run ended and returns its result.

        Raises `RunFailed` if it failed, was canceled or was terminated; its `failure` says why.
        """
        value = await self._do("result")
        return value if self._convert is None else self._convert(value)  # type: ignore[no-any-return]

    async def signal(self, name: str, value: Any = None, *, id: str | None = None) -> Any:
        """Sends a signal; with an id it is accepted once."""
        return await self._do("signal", name=name, value=raw(value, f"the payload of signal `{name}`"), id=id)

    async def message(self, value: Any, *, id: str | None = None) -> Any:
        """Sends a message to an agent, which wakes it."""
        return await self._do("message", value=raw(value), id=id)

    async def append(self, role: str, content: Any, *, id: str | None = None) -> Any:
        """Appends an entry to the conversation of an agent, without waking it."""
        return await self._do("append", role=role, content=raw(content), id=id)

    async def query(self, name: str, input: Any = None) -> Any:
        """Returns what the handler of a query answers; nothing is recorded."""
        return await self._do("query", name=name, input=raw(input, f"the input of `{name}`"))

    async def update(self, name: str, input: Any = None, *, id: str | None = None) -> Any:
        """Returns what the handler of an update answers; the answer is recorded."""
        return await self._do("update", name=name, input=raw(input, f"the input of `{name}`"), id=id)

    async def view(self) -> RunView:
        """Returns the state of the run: status, waits, state, attributes, .."""
        return RunView.from_json(await self._do("view"))

    async def wait(self, *, status: str | Sequence[str] | None = None, state: tuple[str, Any] | None = None) -> RunView:
        """Waits for a status, or for a value of the state, and returns the view; also returns when the run closed."""
        if (status is None) == (state is None):
            raise invalid("`wait` needs either `status` or `state`")
        if state is not None:
            key, value = state
            return RunView.from_json(await self._do("wait", state=Raw(arguments(key=key, value=raw(value)))))
        return RunView.from_json(await self._do("wait", status=[status] if isinstance(status, str) else list(status or ())))

    async def cancel(self, reason: str = "") -> Any:
        """Requests that the run stops: its next wait raises `asyncio.CancelledError`."""
        return await self._do("cancel", reason=reason)

    async def terminate(self, reason: str = "") -> Any:
        """Ends the run at once; its code does not run again."""
        return await self._do("terminate", reason=reason)

    async def pause(self, reason: str = "") -> Any:
        """Stops the run, with its timers, until it is resumed."""
        return await self._do("pause", reason=reason)

    async def resume(self, *, budget: dict[str, Any] | None = None) -> Any:
        """Resumes a paused run."""
        return await self._do("resume", budget=budget)

    async def retry(self, reason: str = "", *, id: str | None = None, include_outcome_unknown: bool = False) -> None:
        """Continues a failed run from its failure."""
        await self._do("retry", reason=reason, id=id, include_outcome_unknown=include_outcome_unknown)

    async def fork(self, **options: Any) -> RunHandle[O]:
        """Starts a new run from a copy of the log: `index`, `generation`, `id`, `drop_signals`, `version`, `reason`, .."""
        return RunHandle(self._onward, (await self._do("fork", **options))["id"], self._convert)

    async def reset(self, **options: Any) -> RunHandle[O]:
        """Forks the run and ends the original."""
        return RunHandle(self._onward, (await self._do("reset", **options))["id"], self._convert)

    async def delete(self) -> Any:
        """Deletes a closed run."""
        return await self._do("delete_run")

    async def log(self, *, generation: int | None = None) -> list[dict[str, Any]]:
        """Returns the recorded events."""
        return list(await self._do("log", generation=generation))

    async def entries(self, **options: Any) -> Any:
        """Returns a page of the conversation of an agent: `limit`, `before`, `leaf`."""
        return await self._do("entries", **options)

    def watch(self, *, after: dict[str, int] | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yields what happens in the run, from the start or after a place, until it ends."""
        return self._onward.items("watch", run=self.id, after=after)

    def stream(self, *, offset: str | None = None) -> AsyncIterator[Any]:
        """Yields what tasks of the run stream while it is open, after the `offset` of an earlier frame."""
        return self._onward.items("stream", run=self.id, offset=offset)

    def attach(self, *, start: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Yields the recorded events, until the run ends."""
        return self._onward.items("attach", run=self.id, **{"from": start})


class TaskHandle(Generic[O]):
    """A standalone task, by its id."""

    __slots__ = ("_convert", "_onward", "id")

    def __init__(self, onward: Onward, id: str, convert: Convert = None) -> None:
        self._onward = onward
        self.id = id
        self._convert = convert

    async def result(self) -> O:
        """Waits until the task ended and returns its result."""
        value = await self._onward.request("task_result", task=self.id)
        return value if self._convert is None else self._convert(value)  # type: ignore[no-any-return]

    async def view(self) -> dict[str, Any]:
        """Returns the state of the task."""
        return dict(await self._onward.request("task_view", task=self.id))

    async def cancel(self, reason: str = "") -> Any:
        """Cancels the task."""
        return await self._onward.request("task_cancel", task=self.id, reason=reason)


class Onward:
    """The engine in this process: a client, and a worker for the workflows and tasks that it is given.

    Open it with `async with`; everything it runs, it runs on the event loop in which it was opened.
    """

    def __init__(
        self,
        store: str,
        *,
        workflows: Sequence[Workflow[Any, Any]] = (),
        tasks: Sequence[Task[Any, Any]] = (),
        middleware: Sequence[Middleware] = (),
        max_threads: int = 32,
        shutdown_timeout: timedelta | float = 10.0,
        **settings: Any,
    ) -> None:
        for definition in workflows:
            if not isinstance(definition, Workflow):
                raise invalid(f"{definition!r:.60} is not a workflow", "decorate the function with `@workflow()`")
        for task in tasks:
            if not isinstance(task, Task):
                raise invalid(f"{task!r:.60} is not a task", "decorate the function with `@task()`")
        self._workflows = list(workflows)
        self._tasks = list(tasks)
        self._middlewares = checked(middleware)
        if not isinstance(max_threads, int) or max_threads < 1:
            raise invalid(f"`max_threads` is a number from 1, not {max_threads!r:.40}")
        self._max_threads = max_threads
        shutdown_timeout_ms = milliseconds(shutdown_timeout)
        if shutdown_timeout_ms is None:
            raise invalid("`shutdown_timeout` is a duration, not `None`", "use 0, or a long time")
        self._shutdown_timeout_ms = shutdown_timeout_ms
        self._tools = collect(settings, self._workflows)
        self._settings: dict[str, Any] = {
            "store": store,
            "kinds": kinds(self._workflows),
            "tasks": [task.settings() for task in self._tasks],
            "shutdown_timeout_ms": self._shutdown_timeout_ms,
            "middleware": bool(self._middlewares),
            **{name: value for name, value in settings.items() if value is not None},
        }
        self._is_opened = False
        self._host: Host | None = None
        #: The process that opened it.
        self._process = 0

    @classmethod
    def embedded(cls, directory: str | Path, **options: Any) -> Onward:
        """Keeps runs in a directory, without a server.

        Options: `workflows`, `tasks`, `agents`, `models`, `middleware` (the first is the outermost), `max_threads`, `shutdown_timeout`, and the settings of the engine
        (`threads`, `tasks_max`, `runs_max`, `cached_runs_max`, `lease_ms`, `retention_ms`, `check_replay`, ..).
        """
        if "://" in str(directory):
            raise invalid(f"{directory} is not a directory", "use `Onward.postgres(..)` or `Onward.connect(..)`")
        return cls(str(directory), **options)

    @classmethod
    def in_memory(cls, **options: Any) -> Onward:
        """Keeps runs in memory only, for tests."""
        return cls("memory:", **options)

    @classmethod
    def postgres(cls, url: str, **options: Any) -> Onward:
        """Keeps runs in a PostgreSQL database; any number of processes may use it."""
        if not url.startswith(("postgres://", "postgresql://")):
            raise invalid("the URL of a database begins with `postgres://`")
        return cls(url, **options)

    @classmethod
    def connect(cls, url: str, *, key: str | None = None, **options: Any) -> Onward:
        """Connects to a server, as a client and, with workflows or tasks, as a worker."""
        if not url.startswith(("http://", "https://")):
            raise invalid(f"{url} is not the URL of a server", "it begins with `http://` or `https://`")
        return cls(url, key=key, **options)

    # ---- life cycle ----

    async def open(self) -> Self:
        """Opens the store or connects, and begins to work."""
        if self._is_opened:
            hint = "make another one with the same arguments; each is opened once"
            raise ContextMisused("this `Onward` was opened before", hint=hint)
        settings = raw(self._settings, "the object of options")
        self._is_opened = True
        opening = asyncio.get_running_loop().run_in_executor(None, start, settings)
        try:
            bridge = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(lambda future: future.cancelled() or future.exception())
            raise
        except OnwardError:
            self._is_opened = False
            raise
        self._process = os.getpid()
        self._host = Host(bridge, self._workflows, self._tasks, self._tools, self._max_threads, self._middlewares)
        return self

    async def close(self, *, timeout: timedelta | float | None = None) -> None:
        """Lets steps and tasks finish until the timeout, and frees the store; open runs continue at the next start."""
        host = self._host
        if host is None or host.ended.done() or os.getpid() != self._process:  # a forked child has nothing to close
            return
        timeout_ms = milliseconds(timeout)
        await host.close(self._shutdown_timeout_ms if timeout_ms is None else timeout_ms)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # After `sys.exit` in the block, steps get no time to finish: they run again at the next start. Ctrl-C cancels the block.
        is_interrupted = kind is not None and issubclass(kind, (KeyboardInterrupt, SystemExit))
        with contextlib.suppress(OnwardClosed):
            await self.close(timeout=0 if is_interrupted else None)

    @property
    def host(self) -> Host:
        if self._host is None:
            raise ContextMisused("this `Onward` is not open", hint="use `async with Onward.embedded(..) as onward:`")
        if os.getpid() != self._process:
            hint = "open an `Onward` in the child process; a child cannot use that of its parent"
            raise OnwardError("this process was forked", code="process_forked", hint=hint, status=409)
        return self._host

    async def request(self, verb: str, /, **fields: Any) -> Any:
        """Executes any verb of the API by its name, and returns its reply."""
        return await self.host.request(verb, arguments(**fields))

    def items(self, verb: str, /, **fields: Any) -> AsyncIterator[Any]:
        """Executes a verb that streams, and yields its items."""
        return self.host.stream(verb, arguments(**fields))

    # ---- runs ----

    @overload
    async def start(self, workflow: Workflow[I, O], input: I, **options: Unpack[StartOptions]) -> RunHandle[O]: ...
    @overload
    async def start(self, workflow: Workflow[None, O], **options: Unpack[StartOptions]) -> RunHandle[O]: ...
    @overload
    async def start(self, workflow: str, input: Any = None, **options: Unpack[StartOptions]) -> RunHandle[Any]: ...
    async def start(self, workflow: Any, input: Any = None, **options: Unpack[StartOptions]) -> RunHandle[Any]:
        """Starts a run, or finds the one that was started with the same id and input."""
        fields: dict[str, Any] = dict(options)
        fields["deadline_ms"] = milliseconds(fields.pop("deadline", None))
        fields["after_ms"] = milliseconds(fields.pop("after", None))
        fields["at"] = None if fields.get("at") is None else time_of(fields["at"])
        attributes = fields.pop("attributes", None) or {}
        fields["attributes"] = {name: attribute(value) for name, value in attributes.items()} or None
        reply = await self.request("start", kind=name_of(workflow), input=input_of("workflow", workflow, input), **fields)
        return RunHandle(self, reply["id"], convert_of(workflow))

    @overload
    def run(self, id: str) -> RunHandle[Any]: ...
    @overload
    def run(self, id: str, workflow: Workflow[Any, O]) -> RunHandle[O]: ...
    def run(self, id: str, workflow: Any = None) -> RunHandle[Any]:
        """Returns the handle of a run; with its workflow, results have its type."""
        return RunHandle(self, id, convert_of(workflow))

    async def list_runs(self, **filters: Any) -> Any:
        """Returns a page of runs: `kind`, `statuses`, `attributes`, `limit`, `cursor`, .., as the verb `list_runs` takes them."""
        return await self.request("list_runs", **filters)

    async def count_runs(self, **filters: Any) -> Any:
        """Counts runs."""
        return await self.request("count_runs", **filters)

    async def invalidate_memos(self, key: str | None = None, *, prefix: str | None = None, run: str | None = None) -> int:
        """Invalidates the memo with this key, or all whose keys begin with `prefix`; returns how many there were.

        With `run`, memos of the tree of that run are meant, otherwise those of the namespace.
        """
        if (key is None) == (prefix is None):
            raise invalid("`invalidate_memos` takes either a `key` or a `prefix`")
        fields = {"key": prefix if key is None else key, "is_prefix": key is None, "run": run}
        return int((await self.request("invalidate_memos", **fields))["invalidated"])

    async def drive(self, run: str, signal: dict[str, Any] | None = None) -> dict[str, Any]:
        """With `on_demand=True`: works on one run until it waits or ends, and returns its status."""
        return dict(await self.request("drive", run=run, signal=signal))

    # ---- schedules ----

    @overload
    async def put_schedule(
        self, id: str, workflow: Workflow[Any, O], **options: Unpack[ScheduleOptions]
    ) -> ScheduleHandle[O]: ...
    @overload
    async def put_schedule(self, id: str, workflow: str, **options: Unpack[ScheduleOptions]) -> ScheduleHandle[Any]: ...
    async def put_schedule(self, id: str, workflow: Any, **options: Unpack[ScheduleOptions]) -> ScheduleHandle[Any]:
        """Stores a schedule, which starts runs by the clock; an equal definition changes nothing, another one replaces it.

        Times are `cron`, `every`, `at` and `spec`; `zone`, `except_dates`, `start_at`, `end_at` and `jitter` apply to them.
        """
        await self.host.request("put_schedule", put_arguments(id, workflow, options))
        return ScheduleHandle(self, id, workflow if isinstance(workflow, Workflow) else None)

    @overload
    def schedule(self, id: str) -> ScheduleHandle[Any]: ...
    @overload
    def schedule(self, id: str, workflow: Workflow[Any, O]) -> ScheduleHandle[O]: ...
    def schedule(self, id: str, workflow: Any = None) -> ScheduleHandle[Any]:
        """Returns the handle of a schedule; with its workflow, results have its type."""
        return ScheduleHandle(self, id, workflow)

    async def schedules(self) -> list[ScheduleView]:
        """Returns all schedules, newest first, without their histories."""
        views: list[ScheduleView] = []
        cursor: str | None = None
        while True:
            page = await self.request("list_schedules", cursor=cursor)
            views += [ScheduleView.from_json(view) for view in page["schedules"]]
            cursor = page.get("next")
            if cursor is None:
                return views

    async def preview_slots(self, count: int = 10, **times: Unpack[ScheduleTimes]) -> list[Slot]:
        """Returns the next slots of times that are not stored."""
        fields: dict[str, Any] = dict(times)
        return slots_of((await self.request("list_slots", spec=spec_of(fields), limit=count))["slots"])

    # ---- answers of people and systems ----

    async def approve(
        self,
        approval: str,
        *,
        answer: Any = None,
        feedback: str | None = None,
        decided_by: str | None = None,
        id: str | None = None,
    ) -> Any:
        """Approves an approval by its id, with the answer that it requires."""
        sent = None if answer is None else raw(answer, "the answer")
        return await self.request("approve", approval=approval, answer=sent, feedback=feedback, decided_by=decided_by, id=id)

    async def disapprove(
        self, approval: str, *, feedback: str | None = None, decided_by: str | None = None, id: str | None = None
    ) -> Any:
        """Rejects an approval by its id."""
        return await self.request("disapprove", approval=approval, feedback=feedback, decided_by=decided_by, id=id)

    async def resolve(self, promise: str, value: Any = None, *, id: str | None = None) -> Any:
        """Resolves a promise."""
        return await self.request("resolve", promise=promise, value=raw(value), id=id)

    async def reject(self, promise: str, message: str, *, code: str = "failed", id: str | None = None) -> Any:
        """Rejects a promise with a failure."""
        return await self.request("reject", promise=promise, failure={"message": message, "code": code}, id=id)

    # ---- tasks ----

    @overload
    async def start_task(self, task: Task[I, O], input: I, **options: Unpack[StandaloneTaskOptions]) -> TaskHandle[O]: ...
    @overload
    async def start_task(self, task: Task[None, O], **options: Unpack[StandaloneTaskOptions]) -> TaskHandle[O]: ...
    @overload
    async def start_task(self, task: str, input: Any = None, **options: Unpack[StandaloneTaskOptions]) -> TaskHandle[Any]: ...
    async def start_task(self, task: Any, input: Any = None, **options: Unpack[StandaloneTaskOptions]) -> TaskHandle[Any]:
        """Queues a task without a workflow; takes the options of `ctx.task`, and an id."""
        found = await self.host.request("start_task", task_arguments(task, input, dict(options)))
        return TaskHandle(self, found["id"], convert_of(task))

    @overload
    def task(self, id: str) -> TaskHandle[Any]: ...
    @overload
    def task(self, id: str, task: Task[Any, O]) -> TaskHandle[O]: ...
    def task(self, id: str, task: Any = None) -> TaskHandle[Any]:
        """Returns the handle of a standalone task."""
        return TaskHandle(self, id, convert_of(task))


def kinds(workflows: list[Workflow[Any, Any]]) -> list[dict[str, Any]]:
    """Returns the settings of kinds: of several versions, the first is current, and the others continue their runs."""
    current: dict[str, dict[str, Any]] = {}
    for workflow in workflows:
        found = current.setdefault(workflow.name, workflow.settings())
        if workflow.version == found["version"]:
            if workflow is not next(other for other in workflows if other.name == workflow.name):
                raise invalid(f"two workflows have the name `{workflow.name}`", "give each a `version`; the first is current")
        elif workflow.version is None:
            raise invalid(f"an earlier workflow `{workflow.name}` has no version", "give it the version of its runs")
        elif workflow.version not in found["previous"]:
            found["previous"].append(workflow.version)
    return list(current.values())


def start(settings: str) -> Bridge:
    try:
        return Bridge.start(settings)
    except NativeError as error:
        raise error_of(error.args[0]) from None
