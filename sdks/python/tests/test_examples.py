"""The examples, which print what they do; their types are complete."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"

EXAMPLES = {
    "hello": ["the run says: Hello, Ada!", "result: Hello, Ada!", "once more: Hello, Ada!", "#5 run_completed"],
    "crash_and_resume": [
        "process 1: booking a flight",
        "process 1: key of the hotel booking",
        "process 1: booking a hotel",
        "process 1 ended: -9",
        "process 2: key of the hotel booking",
        "process 2: booking a hotel",
        "process 2: booking a train",
        "process 2: result: flight to Lisbon, hotel to Lisbon, train to Lisbon",
    ],
    "saga": ["all booked", "canceled the hotel in Venice", "canceled the flight in Venice", "error[no_cars]: "],
    "middleware": [
        "the code sees the card `[redacted]`",
        "mailed ada about card **** 1111",
        "ada paid 2100 cents",
        "the third charge waited: True",
        "the log has the card: False",
        "attempts measured: 4",
    ],
    "fan_out": ["1 of 20 checks failed", "first: city-1: 6 letters, last: city-20: 7 letters", "in parallel: True"],
    "approval": ["paid 500 cents by ada", "error[signal_lost]", "error[not_a_decider]", "no decision in time"],
    "signals": ["repeated: True", "book: ['1. dogs', '2. birds']", "chapters: 2"],
    "children": [
        "resized slow at double pace",
        "album: 200 bytes, then 100",
        "album-1 album completed",
        "photo-broken photo failed",
    ],
    "schedule": [
        "nightly@2026-03-28T01:00:00Z: the orders of 2026-03-28",
        "nightly@2026-03-29T01:00:00Z: the orders of 2026-03-29",
        "nightly@2026-03-30T00:00:00Z: the orders of 2026-03-30",
        "triggered nightly@now:by-hand",
        "started 4, next: 0",
        "next after the holidays: 5",
    ],
    "versions": ["invoice-Monday: v1 with discount version 1: 119", "invoice-Tuesday: v1 with discount version 2: 107", "v2: 96"],
    "agents/hello": ["done after 1 turn: You said: Good morning!", "once more: You said: Good morning!"],
    "agents/tools": ["(looking out of a window in Ulm)", "weather says: 18 degrees and sunny in Ulm"],
    "agents/approval": [
        'first: Call the tool `refund`? {"tool": "refund", "arguments": {"order": "A-17", "cents": 1900}}',
        "(paying 1900 cents back for A-17)",
        "first: refund says: refunded 1900 cents",
        "second: refund says: error: a person has declined this call: over the limit",
    ],
    "agents/research": ["About ferries: library says: three books about ferries", "the editor's own calls: 1"],
}

#: Texts that an example prints once: what is recorded does not run again.
ONCE = {"hello": "the run says", "agents/approval": "(paying", "crash_and_resume": "booking a flight"}


@pytest.fixture(scope="module")
def scripted_model() -> Iterator[str]:
    program = Path(os.environ["ONWARD_BIN"]).with_name("scripted-model")
    with subprocess.Popen([str(program), "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield str(json.loads(process.stdout.readline())["url"])
        process.kill()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_prints_what_it_shows(name: str, scripted_model: str) -> None:
    environment = {**os.environ, "SCRIPTED_MODEL_URL": scripted_model, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("OPENAI_API_KEY", None)
    command = [sys.executable, str(FOLDER / f"{name}.py")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    for text in EXAMPLES[name]:
        found = next((place for place, line in enumerate(lines) if text in line), None)
        assert found is not None, f"`{text}` is not in its place:\n{ended.stdout}"
        del lines[: found + 1]
    if name in ONCE:
        assert ended.stdout.count(ONCE[name]) == 1, ended.stdout


def test_all_examples_run() -> None:
    # Those with frameworks run in tests/frameworks.
    found = {str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.py") if path.parent.name != "frameworks"}
    assert found - set(EXAMPLES) == {"agents/model"}


@pytest.mark.parametrize("files", ["*.py", "agents/*.py"])
@pytest.mark.parametrize("checker", [["mypy", "--strict", "--cache-dir", os.devnull], ["pyright"]], ids=["mypy", "pyright"])
def test_types_of_the_examples(checker: list[str], files: str) -> None:
    paths = sorted(str(path) for path in FOLDER.glob(files))
    command = [sys.executable, "-m", *checker, *paths]
    ended = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
