#!/usr/bin/env python3
"""A worker written from docs/protocol.md alone, with Python's standard library.

    worker.py URL WORKER [PAGE]

Runs the workflow `parcel` and the task `label`. With PAGE it ignores the log that comes with a run and reads it with
`read_log`, so many records at a time.
"""
import datetime
import hashlib
import json
import os
import random
import sys
import urllib.request

URL, WORKER = sys.argv[1], sys.argv[2]
PAGE = int(sys.argv[3]) if len(sys.argv) > 3 else None


# --- calls of workflow code: each adds events to the next commit, and has an answer in the log or not yet -------------------

WAIT = object()  # the call has no answer: the run waits
RECORD = object()  # the call has added its result, which counts when it is recorded


class Step:
    def __init__(self, name, function):
        self.name, self.function = name, function

    def answer(self, log, call_id, new):
        done = log.request(call_id, "step_completed", name=self.name)
        if done:
            return done["output"]["json"]
        output = {"json": self.function()}
        new.append({"type": "step_completed", "call_id": call_id, "name": self.name, "output": output})
        return RECORD


class Timer:
    def __init__(self, seconds):
        self.seconds = seconds

    def answer(self, log, call_id, new):
        if not log.request(call_id, "timer_started"):
            due_at = log.now() + datetime.timedelta(seconds=self.seconds)
            new.append({"type": "timer_started", "call_id": call_id, "due_at": due_at.isoformat(timespec="milliseconds")
                        .replace("+00:00", "Z")})
            return WAIT
        return None if log.input("timer_fired", call_id) else WAIT


class Signal:
    def __init__(self, name):
        self.name = name

    def answer(self, log, call_id, new):
        consumed = log.request(call_id, "signal_consumed", name=self.name)
        if consumed:
            return log.events[consumed["index"]]["payload"]["json"]
        taken = {event["index"] for event in log.events + new if event["type"] == "signal_consumed"}
        for index, event in enumerate(log.events):
            if event["type"] == "signal_received" and event["name"] == self.name and index not in taken:
                new.append({"type": "signal_consumed", "call_id": call_id, "name": self.name, "index": index})
                return event["payload"]["json"]
        if not log.request(call_id, "signal_awaited", name=self.name):
            new.append({"type": "signal_awaited", "call_id": call_id, "name": self.name, "deadline": None, "is_pattern": False})
        return WAIT


class Task:
    def __init__(self, kind, input):
        self.kind, self.input = kind, input

    def answer(self, log, call_id, new):
        # Compared on replay by this worker only, so any hash will do.
        text = json.dumps(self.input, sort_keys=True)
        input_hash = hashlib.sha256(text.encode()).hexdigest()[:32]
        if not log.request(call_id, "task_scheduled", kind=self.kind, input_hash=input_hash):
            new.append({"type": "task_scheduled", "call_id": call_id, "kind": self.kind, "input_hash": input_hash,
                        "input": {"json": self.input}, "options": {"retry": {"attempts_max": 3}}})
            return WAIT
        failed = log.input("task_failed", call_id)
        if failed:
            raise Failed(failed["failure"])
        completed = log.input("task_completed", call_id)
        return completed["output"]["json"] if completed else WAIT


class Failed(Exception):
    def __init__(self, failure):
        super().__init__(failure["message"])
        self.failure = failure


# --- the user's code ----------------------------------------------------------------------------------------------------------

def weigh():
    print("weighing", flush=True)
    return 1200


def parcel(input):
    grams = yield Step("weigh", weigh)
    yield Timer(1)
    address = yield Signal("address")
    label = yield Task("label", {"grams": grams, "to": address})
    return f"{input}: {label}"


def label(input):
    print("labeling", flush=True)
    return f"{input['grams']} g to {input['to']}"


# --- a run: its log in memory, and one commit in flight -------------------------------------------------------------------------

class Log:
    """All events of a run by index, with the time of the last one."""

    def __init__(self):
        self.events, self.at = [], None

    def append(self, record):
        if record["index"] < len(self.events):
            return True  # seen
        if record["index"] > len(self.events):
            return False  # a gap
        self.events += record["events"]
        self.at = record["at"]
        return True

    def now(self):
        return datetime.datetime.fromisoformat(self.at.replace("Z", "+00:00"))

    def request(self, call_id, type, **expected):
        """Returns the recorded request of a call. Another request at this call id is a divergence."""
        for event in self.events:
            if event.get("call_id") == call_id and event["type"] == type:
                for name, value in expected.items():
                    if event[name] != value:
                        raise Diverged(f"{type} at {call_id} has the {name} {event[name]}, not {value}")
                return event
        return None

    def input(self, type, call_id):
        return next((event for event in self.events if event["type"] == type and event["call_id"] == call_id), None)


class Diverged(Exception):
    pass


class Run:
    def __init__(self, head):
        self.key, self.generation, self.epoch = head["key"], head["generation"], head["epoch"]
        self.next_commit = head["next_commit"]
        self.log = Log()
        self.in_flight = None  # the frame of a commit, until it is answered
        self.early = []  # records behind that commit
        self.has_unread = False

    def advance(self):
        """Executes the code from its start with the answers of the log. Returns new events, and whether the code waits."""
        code, new, value, number = parcel(self.log.events[0]["input"]["json"]), [], None, 0
        try:
            while True:
                call = code.send(value)
                value = call.answer(self.log, str(number), new)
                number += 1
                if value is WAIT or value is RECORD:
                    return new, value is WAIT
        except StopIteration as end:
            return new + [{"type": "run_completed", "output": {"json": end.value}}], False
        except Failed as failed:
            return new + [{"type": "run_failed", "failure": failed.failure}], False

    def commit(self):
        """Returns the frame with what the code has done since the last commit, if anything is to be recorded."""
        new, waits = self.advance()
        if not new:
            if not self.has_unread:
                return None
            new = [{"type": "run_suspended", "reason": "settled"}]  # inputs that led to no call
        self.has_unread = False
        commit = {"key": self.key, "generation": self.generation, "epoch": self.epoch, "n": self.next_commit,
                  "commit_id": str(random.getrandbits(64)), "horizon": len(self.log.events) - 1, "events": new, "waits": waits}
        self.in_flight = {"commit": {"request": next_request(), "commit": commit}}
        return self.in_flight


# --- the connection ----------------------------------------------------------------------------------------------------------------

requests = 0


def next_request():
    global requests
    requests += 1
    return requests


class Worker:
    def __init__(self):
        self.runs, self.reading, self.out, self.session, self.offer = {}, {}, [], 0, 0

    def serve(self):
        hello = {"protocol": 1, "worker": WORKER, "kinds": [{"kind": "parcel"}], "task_kinds": ["label"], "runs_max": 10,
                 "sdk": "worker.py", "connection": 1}
        self.out = [{"hello": hello}]
        wait_ms = 0
        while True:
            frames, self.out = self.out or [{"heartbeat": {"request": 0}}], []
            received = post(frames, wait_ms)
            for frame in received:
                (name, content), = frame.items()
                getattr(self, "on_" + name)(content)
            # At least three frames per lease: each is a sign of life.
            wait_ms = 0 if self.out else self.lease_ms // 4

    def on_welcome(self, welcome):
        self.session, self.lease_ms = welcome["session"], welcome["lease_ms"]
        self.out.append({"credit": {"runs": 10, "tasks": 10}})

    def on_run(self, content):
        run = Run(content["head"])
        self.runs[run.key["id"]] = run
        self.out.append({"credit": {"runs": 1, "tasks": 0}})
        if PAGE or content.get("log") is None:
            return self.read(run)
        self.add(run, content["log"]["records"])
        if content["log"]["more"]:
            return self.read(run)
        self.go_on(run)

    def read(self, run):
        request = next_request()
        self.reading[request] = run
        self.out.append({"read_log": {"request": request, "run": run.key, "generation": run.generation,
                                      "from": len(run.log.events), "limit": PAGE or 100}})

    def add(self, run, records):
        for record in records:
            if not run.log.append(record):
                return False
            run.has_unread = run.has_unread or "commit" not in record
        return True

    def go_on(self, run):
        if run.in_flight is None:
            try:
                frame = run.commit()
            except Diverged as diverged:
                report = {"reason": "diverged", "message": str(diverged)}
                frame = {"pause": {"request": next_request(), "run": run.key, "generation": run.generation, "epoch": run.epoch,
                                   "report": report}}
            self.out += [frame] if frame else []

    def on_input(self, content):
        run = self.runs.get(content["run"]["id"])
        if run is None or run.epoch != content["epoch"]:
            return
        if self.add(run, [content["record"]]):
            self.go_on(run)
        elif run.in_flight:
            run.early.append(content["record"])
        else:
            self.read(run)

    def on_run_lost(self, content):
        self.runs.pop(content["run"]["id"], None)

    def on_task(self, content):
        task, self.offer = content["task"], max(self.offer, content["number"])
        output = {"json": label(task["input"]["json"])}
        self.out.append({"report": {"request": next_request(), "task": task["id"], "claim": task["claim"],
                                    "report": {"completed": output}}})
        self.out.append({"credit": {"runs": 0, "tasks": 1}})

    def on_task_over(self, content):
        pass  # tasks of this worker end at once

    def on_question(self, content):
        self.out.append({"answer": {"question": content["question"], "answer": None, "is_passed_on": False}})

    def on_reply(self, content):
        (name, outcome), = content["outcome"].items()
        request = content["request"]
        run = next((run for run in self.runs.values() if run.in_flight and run.in_flight["commit"]["request"] == request), None)
        if name == "committed":
            self.on_committed(run, outcome)
        elif name == "log":
            run = self.reading.pop(request)
            self.add(run, outcome["records"])
            self.read(run) if outcome["more"] or (PAGE and outcome["records"]) else self.go_on(run)
        elif name == "problem" and run:
            run.in_flight = None
            if outcome["advice"] == "stop_run":
                del self.runs[run.key["id"]]
            else:
                self.read(run)  # inputs_unread: they lead to another commit
        elif name == "problem":
            print("problem", outcome, file=sys.stderr, flush=True)

    def on_committed(self, run, committed):
        commit = run.in_flight["commit"]["commit"]
        run.in_flight, run.next_commit = None, run.next_commit + 1
        record = {"index": committed["index"], "at": committed["at"], "commit": {}, "events": commit["events"]}
        is_complete = self.add(run, [record]) and self.add(run, run.early)
        run.early = []
        if committed["status"] in ("completed", "failed", "canceled", "terminated"):
            del self.runs[run.key["id"]]
        elif is_complete:
            self.go_on(run)
        else:
            self.read(run)

    def on_goodbye(self, content):
        sys.exit("the server ends")


def post(frames, wait_ms):
    body = json.dumps({"frames": frames}).encode()
    request = urllib.request.Request(f"{URL}/v1/workers/{WORKER}/frames?wait_ms={wait_ms}", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["frames"]


if __name__ == "__main__":
    print("pid", os.getpid(), flush=True)
    Worker().serve()
