"""Prints figures as crates/onward-bench does."""

import json
import math
import os
import sys


def report(name: str, value: float, unit: str) -> None:
    """Prints a figure: one line of JSON with `--json`."""
    value = rounded(value)
    text = json.dumps({"name": name, "value": value, "unit": unit}) if "--json" in sys.argv else f"{name:<34} {value:>14} {unit}"
    print(text, flush=True)


def rounded(value: float) -> float:
    """Rounds to three significant digits or whole numbers: more would be noise."""
    digits = 0 if value == 0 or abs(value) >= 1_000 else 2 - math.floor(math.log10(abs(value)))
    return round(value, digits) if digits > 0 else round(value)


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def resident() -> int:
    """Returns the resident memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
