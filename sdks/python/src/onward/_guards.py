"""Functions whose results change between replays: refused while workflow code runs, with the name of the replacement.

`install` replaces them once in a process. Outside of workflow code they do what they did, after one check of the running loop.
"""

from __future__ import annotations

import asyncio
import ctypes
import datetime
import functools
import gc
import os
import random
import secrets
import sys
import time
import uuid
from asyncio import _get_running_loop
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._loop import TurnLoop

if TYPE_CHECKING:
    from ._run import Run

NOW = "use `ctx.now()`"
RANDOM = "use `ctx.random()`"
UUID = "use `ctx.uuid()`"
SLEEP = "use `await ctx.sleep(..)`"

#: Modules that read the clock for themselves: the code does not see the value.
ALLOWED = {
    "logging",
    "warnings",
    "asyncio",
    "threading",
    "concurrent",
    "importlib",
    "traceback",
    "linecache",
    "tracemalloc",
    "onward",
}

#: Modules of AI frameworks: they get values of the run instead of a refusal (`stand_in_for`).
STAND_INS: set[str] = set()
#: Modules that call guarded functions for others.
HELPERS = {"uuid", "secrets", "random"}

is_installed = False


def install() -> None:
    """Guards the functions, once."""
    global is_installed
    if is_installed:
        return
    is_installed = True
    clocks = ["time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "localtime", "gmtime", "ctime"]
    guard(time, clocks, NOW)
    guard(time, ["sleep"], SLEEP)
    # The functions of the module are methods of one hidden generator. A `random.Random(seed)` of the code is deterministic.
    shared = [name for name, value in vars(random).items() if getattr(value, "__self__", None) is random.random.__self__]  # type: ignore[attr-defined]
    guard(random, shared, RANDOM)
    guard(uuid, ["uuid1", "uuid4"], UUID)
    guard(os, ["urandom", "getrandom"], RANDOM)
    guard(secrets, ["token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice"], RANDOM)
    keep_order()
    guard_type(datetime.datetime, ["now", "utcnow", "today"])
    guard_type(datetime.date, ["today"])


def guard(module: Any, names: list[str], replacement: str) -> None:
    for name in names:
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, guarded(original, f"{module.__name__}.{name}", replacement))


def guard_type(kind: Any, names: list[str]) -> None:
    """Guards class methods of a type that is written in C, whose attributes cannot be set."""
    attributes = gc.get_referents(kind.__dict__)[0]
    for name in names:
        if isinstance(attributes, dict) and name in attributes:
            attributes[name] = ClassMethod(attributes[name], f"{kind.__name__}.{name}")
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def keep_order() -> None:
    """Makes `asyncio.as_completed` begin coroutines in their order: it puts them into a set, which has another one each time."""
    original = asyncio.as_completed

    @functools.wraps(original)
    def as_completed(fs: Any, *, timeout: float | None = None) -> Any:
        if isinstance(_get_running_loop(), TurnLoop):
            fs = [asyncio.ensure_future(future) for future in fs]
        return original(fs, timeout=timeout)

    asyncio.as_completed = asyncio.tasks.as_completed = as_completed


class ClassMethod:
    """A class method that is refused in workflow code."""

    def __init__(self, original: Any, name: str) -> None:
        self.original = original
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        loop = _get_running_loop()
        if isinstance(loop, TurnLoop):
            run = loop.run
            if run is not None and framework_caller() is not None:
                return functools.partial(date_of_run, run, owner or type(instance), self.name)
            refuse_in_workflows(self.name, NOW, 2)
        return self.original.__get__(instance, owner)


def guarded(original: Callable[..., Any], name: str, replacement: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        loop = _get_running_loop()
        # With an argument, functions like `time.gmtime` do not read the clock.
        if isinstance(loop, TurnLoop) and not (args and replacement is NOW):
            run = loop.run
            if run is not None and replacement is not SLEEP:
                caller = framework_caller()
                if caller is not None:
                    return value_of_run(run, caller, name, original, args, options)
            refuse_in_workflows(name, replacement, 2)
        return original(*args, **options)

    return call


def refuse_in_workflows(name: str, replacement: str, depth: int) -> None:
    """Pauses the run whose code is running in this thread."""
    loop = _get_running_loop()
    if not isinstance(loop, TurnLoop) or loop.run is None:
        return
    caller = sys._getframe(depth).f_globals.get("__name__") or ""
    root = caller.partition(".")[0]
    if root not in ALLOWED:
        loop.run.misuse(f"`{name}()` is not deterministic in workflow code: {replacement}, or call it in a step")


# ---- values for frameworks ----


def stand_in_for(*modules: str) -> None:
    """Lets the code of a framework read clocks and random numbers in workflow code: it gets those of the run.

    A framework reads them for time stamps and ids that its users do not see. They are the same in every replay.
    """
    STAND_INS.update(modules)


def framework_caller() -> str | None:
    """Returns the line of a framework that called the guarded function that called this one, if a framework did."""
    if not STAND_INS:
        return None
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") in HELPERS:
        frame = frame.f_back
    if frame is None:
        return None
    name = frame.f_globals.get("__name__") or ""
    return f"{name}:{frame.f_lineno}" if name.partition(".")[0] in STAND_INS else None


def date_of_run(run: Run, kind: Any, name: str, tz: Any = None) -> Any:
    """Returns what `now`, `utcnow` and `today` return at the time of the run."""
    seconds = run.now_ms / 1000
    if not issubclass(kind, datetime.datetime):
        return kind.fromtimestamp(seconds)
    if name.endswith("utcnow"):
        return kind.fromtimestamp(seconds, datetime.timezone.utc).replace(tzinfo=None)
    return kind.fromtimestamp(seconds, tz)


def value_of_run(run: Run, caller: str, name: str, original: Any, args: Any, options: Any) -> Any:
    """Returns what a guarded function returns, from the time of the run, and from random numbers of the run and the caller."""
    module, _, function = name.partition(".")
    if module == "time":
        if function.endswith("_ns"):
            return run.now_ms * 1_000_000
        seconds = run.now_ms / 1000
        return original(seconds) if function in ("localtime", "gmtime", "ctime") else seconds
    # Not `ctx.random()`: frameworks draw some numbers once in a process, which must not shift the numbers of calls or of others.
    draws = run.handlers().draws
    draws[caller] = draws.get(caller, 0) + 1
    numbers = random.Random(f"{run.id} {run.generation} {caller} {draws[caller]}")
    if module == "uuid":
        return uuid.UUID(int=numbers.getrandbits(128), version=4)
    if module == "os":
        return numbers.randbytes(args[0])
    return getattr(numbers, function)(*args, **options) if module == "random" else SECRETS[function](numbers, *args, **options)


SECRETS: dict[str, Callable[..., Any]] = {
    "token_bytes": lambda numbers, count=None: numbers.randbytes(count or 32),
    "token_hex": lambda numbers, count=None: numbers.randbytes(count or 32).hex(),
    "token_urlsafe": lambda numbers, count=None: numbers.randbytes(count or 32).hex(),
    "randbelow": lambda numbers, end: numbers.randrange(end),
    "randbits": lambda numbers, count: numbers.getrandbits(count),
    "choice": lambda numbers, items: numbers.choice(items),
}
