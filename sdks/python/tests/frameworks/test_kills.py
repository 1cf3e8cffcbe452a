"""A process that is killed in the middle of an agent's run repeats no call that had finished."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import HANG_S
from scripted import calls, forget, request_count, says

KEYS = ["a", "b", "c"]


def run_until(line: str, *arguments: str) -> list[str]:
    """Starts the process, and kills it when it has printed the line."""
    command = [sys.executable, "-B", str(Path(__file__).with_name("crashing.py")), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    guard = threading.Timer(HANG_S, process.kill)
    guard.start()
    lines: list[str] = []
    for printed in process.stdout:
        lines.append(printed.strip())
        if printed.startswith(line):
            process.kill()
            break
    process.wait()
    guard.cancel()
    process.stdout.close()
    assert lines and lines[-1].startswith(line), lines
    return lines


@pytest.mark.parametrize("framework", ["openai_agents", "pydantic_ai"])
def test_a_killed_process_repeats_no_finished_call(framework: str, tmp_path: Path) -> None:
    forget()
    directory, effects = str(tmp_path / "data"), tmp_path / "effects.txt"
    effects.touch()
    for key in KEYS:
        calls(("look_up", {"key": key}))
    says("This answer is cut off by a kill.", chunk_delay_ms=50)
    says("done")
    for count in range(1, len(KEYS) + 1):
        run_until("in the tool", framework, directory, str(effects))
        # The calls before this one were finished: a repeated request would take the answer of a later one.
        assert request_count() == count
        assert effects.read_text().split() == [key for key in KEYS[: count - 1] for _ in range(2)] + [KEYS[count - 1]]
    run_until("in the answer", framework, directory, str(effects))
    lines = run_until("result:", framework, directory, str(effects))
    assert lines[-1] == "result: done"
    # Only the request whose answer was cut off was made twice, and each tool ran again after the kill in it.
    assert request_count() == len(KEYS) + 2
    assert effects.read_text().split() == [key for key in KEYS for _ in range(2)]
