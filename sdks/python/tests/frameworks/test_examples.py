"""The examples with frameworks, which print what they do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripted import forget

FOLDER = Path(__file__).parents[2] / "examples" / "frameworks"

EXAMPLES = {
    "with_openai_agents": [
        "the model calls look_outside",
        "(looking out of a window)",
        "look_outside says: 18 degrees and sunny",
    ],
    "with_pydantic_ai": ["a person is asked: refund", "refund says: refunded 1900 cents"],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_prints_what_it_shows(name: str) -> None:
    forget()
    environment = {key: value for key, value in os.environ.items() if key != "OPENAI_API_KEY"}
    command = [sys.executable, "-B", str(FOLDER / f"{name}.py")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    # A watcher may receive a value later than the caller its result.
    assert sorted(ended.stdout.splitlines()) == sorted(EXAMPLES[name])


def test_all_examples_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXAMPLES)
