"""The programs of the README work as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_quickstart_runs_twice_and_has_no_type_errors(tmp_path: Path) -> None:
    program = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert program is not None
    (tmp_path / "quickstart.py").write_text(program[1])
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "quickstart.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=dict(os.environ)
        )
        assert (done.stdout, done.stderr) == ("label: paid for a teapot 42 noted\n", "")
    checks = [
        ["mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "mypy")],
        ["pyright", "--pythonpath", sys.executable],
    ]
    for check in checks:
        found = subprocess.run([sys.executable, "-m", *check, "quickstart.py"], cwd=tmp_path, capture_output=True, text=True)
        assert found.returncode == 0, found.stdout + found.stderr
