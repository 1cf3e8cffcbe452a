"""Values that are JSON read back as they were; others are refused with their place."""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, List, NamedTuple, NewType, Optional, TypedDict, Union

import pytest
from conftest import opened

from onward import Ctx, Failure, RunFailed, ValueInvalid, task, workflow
from onward._json import converter, encode


def cycle() -> dict[str, Any]:
    value: dict[str, Any] = {"a": []}
    value["a"].append(value)
    return value


@dataclass
class Photo:
    name: str
    data: Any


REFUSED: list[tuple[Any, str, str]] = [
    (b"x", "$", "bytes"),
    ({"items": [1, {"photo": b"x"}]}, "$.items[1].photo", "bytes"),
    ([float("nan")], "$[0]", "NaN"),
    ({"x y": float("-inf")}, '$["x y"]', "infinities"),
    ({"at": datetime(2026, 1, 1)}, "$.at", "ISO 8601"),
    ("\ud800", "$", "lone surrogate"),
    ({"\udfff": 1}, '$["\\udfff"]', "lone surrogate"),
    ({"a": {1: 2}}, "$.a[1]", "key of type `int`"),
    ([{1, 2}], "$[0]", "no order"),
    ([2**64], "$[0]", "64 bits"),
    ([Decimal("1.1")], "$[0]", "Decimal"),
    ((1, object()), "$[1]", "`object`"),
    (Photo("x", b""), "$.data", "bytes"),
    (cycle(), "$.a[0]", "contains itself"),
]


@pytest.mark.parametrize(("value", "path", "problem"), REFUSED)
def test_a_value_that_is_not_json_is_refused_with_its_path(value: Any, path: str, problem: str) -> None:
    with pytest.raises(ValueInvalid) as caught:
        encode(value)
    assert caught.value.path == path
    assert problem in caught.value.message
    assert caught.value.message.startswith(f"the value is not JSON at {path}: ")


def test_deep_nesting_is_refused() -> None:
    value: Any = 1
    for _ in range(101):
        value = [value]
    with pytest.raises(ValueInvalid, match="nested deeper than 100"):
        encode(value)


def test_json_values_read_back_as_they_were() -> None:
    values = [
        "",
        'a "quoted"\n\u2028 \x00 text ü 🚲',
        0,
        -(2**63),
        2**64 - 1,
        1.5e-300,
        0.1,
        True,
        None,
        [],
        {},
        {"a": [1, {"b": None}]},
    ]
    for value in values:
        assert json.loads(encode(value)) == value
    assert encode({"a": (1, 2.0)}) == '{"a":[1,2.0]}'


class Point(NamedTuple):
    x: int
    y: Optional[Photo] = None


class Options(TypedDict):
    photo: Photo


class Node(TypedDict):
    photos: "List[Photo]"
    children: "List[Node]"


class Pair(NamedTuple):
    photo: Photo
    rest: "Optional[Pair]" = None


PhotoAlias = NewType("PhotoAlias", Photo)


@dataclass
class Tree:
    name: str
    children: List["Tree"] = field(default_factory=list)


def test_annotated_types_are_made_from_json() -> None:
    photo = {"name": "a", "data": 1}
    cases: list[tuple[Any, Any, Any]] = [
        (list[Photo], [photo], [Photo("a", 1)]),
        (dict[str, Photo], {"p": photo}, {"p": Photo("a", 1)}),
        (Optional[Photo], None, None),
        (Union[Photo, None], photo, Photo("a", 1)),
        (tuple[int, Photo], [1, photo], (1, Photo("a", 1))),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Options, {"photo": photo}, {"photo": Photo("a", 1)}),
        (Point, [1, photo], Point(1, Photo("a", 1))),
        (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
        (Pair, [photo, [photo, None]], Pair(Photo("a", 1), Pair(Photo("a", 1)))),
        (Node, {"photos": [photo], "children": []}, {"photos": [Photo("a", 1)], "children": []}),
        (PhotoAlias, photo, Photo("a", 1)),
        (Union[int, Photo], photo, Photo("a", 1)),
        (Union[List[str], Photo], photo, Photo("a", 1)),
        (Union[Photo, str], "a", "a"),
        (Union[float, Photo], 1, 1),
    ]
    for annotation, found, wanted in cases:
        convert = converter(annotation)
        assert convert is not None and convert(found) == wanted
    for plain in (str, int, Any, list[str], dict[str, int], Optional[str]):
        assert converter(plain) is None


def test_json_of_another_type_is_refused_with_its_path() -> None:
    convert = converter(list[Photo])
    assert convert is not None
    with pytest.raises(ValueInvalid) as caught:
        convert([{"name": "a", "data": 1}, {"nme": 1}])
    assert caught.value.path == "$[1]" and "Photo" in caught.value.message
    either = converter(Union[int, str, list[Photo]])
    assert either is not None
    with pytest.raises(ValueInvalid, match="an array"):
        either({})


async def test_values_of_calls_are_refused_with_their_name() -> None:
    @task("returns-bytes")
    async def returns_bytes() -> Any:
        return {"photo": b""}

    @workflow("w")
    async def w(ctx: Ctx, which: str) -> Any:
        try:
            if which == "step":
                await ctx.step("load", lambda: [b""])
            elif which == "task":
                await ctx.task(returns_bytes)
            elif which == "input":
                await ctx.task("other", {"at": datetime(2026, 1, 1)})
            elif which == "state":
                ctx.state["seen"] = {1}
            elif which == "signal":
                ctx.send_signal("x", "news", float("nan"))
        except (Failure, ValueInvalid) as error:
            return error.message
        return b"result"

    wanted = {
        "step": "the result of step `load` is not JSON at $[0]: bytes",
        "task": "the result of the task is not JSON at $.photo: bytes",
        "input": "the input of task `other` is not JSON at $.at: a date",
        "state": "the state `seen` is not JSON at $: a set",
        "signal": "the payload of signal `news` is not JSON at $: NaN",
    }
    async with opened(w, returns_bytes) as onward:
        for which, message in wanted.items():
            assert message in await (await onward.start(w, which)).result()
        with pytest.raises(RunFailed) as caught:
            await (await onward.start(w, "result")).result()
        assert caught.value.failure is not None
        assert "the result of workflow `w` is not JSON at $: bytes" in caught.value.failure.message
        with pytest.raises(ValueInvalid, match="the input of workflow `w` is not JSON"):
            await onward.start("w", {"x": b""})
        run = await onward.start(w, "step", id="x")
        with pytest.raises(ValueInvalid, match="the payload of signal `s`"):
            await run.signal("s", {"x": cycle()})


async def test_exceptions_with_strange_texts_become_failures() -> None:
    class Strange(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    @workflow("w")
    async def w(ctx: Ctx, which: int) -> str:
        def fail() -> None:
            if which == 0:
                raise Strange
            if which == 1:
                raise ValueError("\ud800 \x00")
            raise Failure("with data", data={"x": b""})

        try:
            await ctx.step("fail", fail)
        except Failure as failure:
            return failure.message
        return ""

    async with opened(w) as onward:
        results = [await (await onward.start(w, which)).result() for which in range(3)]
    assert "Strange" in results[0] and "?" in results[1] and "with data" in results[2] and "not JSON" in results[2]


async def test_wrong_definitions_and_arguments_are_refused_with_a_hint() -> None:
    from onward import InvalidArguments, Onward, RetryPolicy

    plain: Any = len
    with pytest.raises(InvalidArguments, match="parentheses"):
        workflow(len)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="async def"):
        workflow("w")(plain)
    with pytest.raises(InvalidArguments, match="one input"):

        def many(a: int, b: int, c: int) -> None: ...

        function: Any = many
        task("t")(function)
    with pytest.raises(InvalidArguments, match="takes 2 arguments"):

        def add(a: int, b: int) -> int:
            return a + b

        task("t")(add)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="takes 2 arguments"):

        async def by_name(ctx: Ctx, *, item: str) -> None: ...

        workflow("w")(by_name)  # type: ignore[arg-type]

    wrong_policies: list[dict[str, Any]] = [{"attempts": 0}, {"attempts": "3"}, {"growth": 0}, {"first_delay": None}]
    for options in wrong_policies:
        with pytest.raises(InvalidArguments):
            RetryPolicy(**options)
    with pytest.raises(InvalidArguments, match="directory"):
        Onward.embedded("http://localhost")
    with pytest.raises(InvalidArguments, match="http://"):
        Onward.connect("localhost:8080")
    with pytest.raises(InvalidArguments, match="@workflow"):
        Onward.in_memory(workflows=[plain])

    @workflow("w")
    async def w(ctx: Ctx) -> list[str]:
        found = []
        for wrong in (
            lambda: ctx.sleep(-1),
            lambda: ctx.sleep("1"),  # type: ignore[arg-type]
            lambda: ctx.step("s", 5),  # type: ignore[call-overload]
            lambda: ctx.step("s", len, "", retry="3"),  # type: ignore[call-overload]
            lambda: ctx.sleep_until(datetime(2026, 1, 1)),
            lambda: ctx.attributes.set("x", [1]),  # type: ignore[arg-type]
            lambda: ctx.child(5),  # type: ignore[call-overload]
            lambda: ctx.query("q", asyncio.sleep),
        ):
            try:
                wrong()
                found.append("accepted")
            except InvalidArguments as error:
                found.append(error.code)
        return found

    async with opened(w) as onward:
        assert await (await onward.start(w)).result() == ["value_invalid"] * 8
