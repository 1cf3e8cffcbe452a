#!/usr/bin/env python3
"""Runs worker.py, which was written from docs/protocol.md alone, kills it in the middle of a run, and lets another one finish.

The server is at ONWARD_URL, with a short lease.
"""
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

URL = os.environ["ONWARD_URL"].rstrip("/")
HERE = os.path.dirname(os.path.abspath(__file__))


def call(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.load(response)


def worker(name, *arguments):
    command = [sys.executable, "-B", os.path.join(HERE, "worker.py"), URL, name, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def until(what, condition):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    sys.exit(f"not in time: {what}")


def events():
    return call("/v1/runs/parcel-1/events?from=0&limit=100")["events"]


def types():
    return [event["event"]["type"] for event in events()]


def main():
    first = worker("py-1")
    call("/v1/runs", {"kind": "parcel", "id": "parcel-1", "input": "books"})
    until("the timer starts", lambda: "timer_started" in types())
    first.send_signal(signal.SIGKILL)
    assert first.communicate()[0].split()[2:] == ["weighing"]

    # The next worker gets the run after the lease of the first, reads the log in pages and does not repeat the step.
    second = worker("py-2", "2")
    until("the signal is awaited", lambda: "signal_awaited" in types())
    call("/v1/runs/parcel-1/signals", {"name": "other", "payload": 1})
    call("/v1/runs/parcel-1/signals", {"name": "address", "payload": "Elm Street 1"})
    outcome = call("/v1/runs/parcel-1/result?wait_ms=60000")
    second.kill()
    assert second.communicate()[0].split()[2:] == ["labeling"]
    assert outcome["outcome"] == {"output": {"json": "books: 1200 g to Elm Street 1"}}, outcome
    calls = ["step_completed", "timer_started", "timer_fired", "signal_awaited", "signal_consumed", "task_scheduled",
             "task_completed", "run_completed"]
    assert [type for type in types() if type in calls] == calls, types()
    print("a worker written from docs/protocol.md was killed, and another one finished its run")


main()
