"""The scripted model server: what it answers, and what it was asked."""

import asyncio
import json
import os
import urllib.request
from typing import Any

from onward import RunHandle

URL = os.environ["SCRIPTED_MODEL_URL"]


def control(method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(URL + path, data, method=method)) as answer:
        return json.loads(answer.read() or "null")


def says(text: str, **options: Any) -> None:
    """Adds an answer to those that the server gives next."""
    control("POST", "/script/answers", {"parts": [{"text": text}], **options})


def calls(*tools: tuple[str, dict[str, Any]], **options: Any) -> None:
    """Adds an answer that calls tools."""
    parts = [{"call": {"name": name, "arguments": json.dumps(arguments)}} for name, arguments in tools]
    control("POST", "/script/answers", {"parts": parts, **options})


def fails(fault: Any) -> None:
    control("POST", "/script/answers", {"fault": fault})


def forget() -> None:
    control("DELETE", "/script")


def request_count() -> int:
    return int(control("GET", "/script")["request_count"])


def last_messages() -> list[dict[str, Any]]:
    return list(control("GET", "/script")["requests"][-1]["body"]["messages"])


async def steps(run: RunHandle[Any]) -> list[str]:
    """Returns the names of the steps that the log has, in the order of their results."""
    events = [event for record in await run.log() for event in record["events"]]
    return [event["name"] for event in events if event["type"] == "step_completed"]


class Watcher:
    """What a watcher of a run receives, until the run ends."""

    def __init__(self, run: RunHandle[Any]) -> None:
        self.run = run
        self.values: list[Any] = []
        #: How many values came before the result of the first step.
        self.before_result: int | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_watching = asyncio.Event()

    async def __aenter__(self) -> "Watcher":
        self.task = asyncio.create_task(self.watch())
        await self.is_watching.wait()
        return self

    async def watch(self) -> None:
        async for frame in self.run.watch():
            self.is_watching.set()
            content = frame["content"]
            events = content["log"]["record"]["events"] if "log" in content else []
            if self.before_result is None and any(event["type"] == "step_completed" for event in events):
                self.before_result = len(self.values)
            if "emitted" in content:
                assert content["emitted"]["name"] == "model"
                self.values.append(content["emitted"]["value"]["json"])

    async def __aexit__(self, *_: Any) -> None:
        assert self.task is not None
        await self.task

    def text(self) -> str:
        return "".join(value["text"] for value in self.values if value["type"] == "text")
