#!/usr/bin/env python3
"""Executes the commands of a page in order and compares their output with the blocks behind them.

    page.py PAGE

- `sh` blocks run in one shell, with URL, and with `onward` in the path; `sh ignore` blocks do not. A `curl` must succeed, or fail
  with the status that a comment behind it names: `# 409 signal_lost`. It is repeated for a while, because a person is slower
  than a worker.
- A `json` or `text` block behind an `sh` block is the output of its last command. JSON may have more fields than the block shows,
  text more lines; `…` stands for anything.
- `frames` blocks are a conversation with the server: `>` lines are sent by the worker that the first `hello` names, `<` lines are
  received, in this order, perhaps among others.
"""
import json
import os
import re
import select
import shlex
import subprocess
import sys
import time
import urllib.request

URL = os.environ["ONWARD_URL"].rstrip("/")
PATIENCE = 15  # seconds for a command that does not succeed at once
PRELUDE = """
URL=%s
curl() { command curl -s --fail-with-body "$@"; }
""" % URL
MARK = "\x01"


class Shell:
    """One shell for the whole page."""

    def __init__(self):
        self.process = subprocess.Popen(["bash", "-u"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.run(PRELUDE)

    def run(self, command):
        """Returns the output and the exit code."""
        self.process.stdin.write(f"{command}\nprintf '{MARK}%d{MARK}' $?\n".encode())
        self.process.stdin.flush()
        text, deadline = "", time.monotonic() + 60
        while not re.search(MARK + r"\d+" + MARK + "$", text):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not chunk:
                raise Wrong(f"no end after:\n{text}")
            text += chunk.decode(errors="replace")
        output, code, _ = text.rsplit(MARK, 2)
        return output, int(code)


class Wrong(Exception):
    pass


def blocks(page):
    """Returns line number, language and text of each fenced block."""
    for match in re.finditer(r"^```(\w+(?: ignore)?)\S*\n(.*?)^```$", page, re.M | re.S):
        yield page.count("\n", 0, match.start()) + 2, match.group(1), match.group(2)


def commands(block):
    """Splits a block at line breaks outside of quotes and without a backslash."""
    command = ""
    for line in block.splitlines():
        command += line
        try:
            shlex.split(command)
            complete = not line.endswith("\\")
        except ValueError:
            complete = False
        if complete and command.strip():
            yield command
            command = ""
        elif command:
            command += "\n"


def execute(shell, command):
    """Runs a command until it ends as the page shows. Returns its output."""
    expected = re.search(r"#.*?\b([45]\d\d) (\w+)", command)
    # A stream does not end while the run is open.
    is_stream = re.search(r"\bcurl -N\b", command) is not None
    text = command.replace("curl -N", "curl -N --max-time 2") if is_stream else command
    deadline = time.monotonic() + PATIENCE
    while True:
        output, code = shell.run(text)
        if expected:
            is_right = code == 22 and f'"code":"{expected.group(2)}"' in output.replace(" ", "")
        else:
            is_right = code == 0 or (is_stream and code == 28)
        if is_right:
            return output
        if time.monotonic() > deadline:
            raise Wrong(f"{command}\nended with {code}:\n{output}")
        time.sleep(0.2)


def fits(shown, real):
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(real, dict):
        return all(name == "…" or (name in real and fits(value, real[name])) for name, value in shown.items())
    if isinstance(shown, list) and isinstance(real, list):
        return len(shown) == len(real) and all(map(fits, shown, real))
    if isinstance(shown, str) and isinstance(real, str) and "…" in shown:
        return pattern(shown).fullmatch(real) is not None
    return shown == real


def pattern(text):
    return re.compile(".*".join(map(re.escape, text.split("…"))), re.S)


def compare_patiently(shell, command, language, shown, output):
    """Compares, and repeats a command that only reads: its run may not be that far."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return compare(language, shown, output)
        except Wrong:
            if re.search(r" -[dX] | --data", command) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
            output = execute(shell, command)


def compare(language, shown, output):
    if language == "json":
        if not fits(json.loads(shown), json.loads(output)):
            raise Wrong(f"the page shows\n{shown}\nand not\n{output}")
        return
    lines = iter(output.splitlines())
    for line in filter(None, shown.splitlines()):
        if not any(pattern(line).fullmatch(real.rstrip()) for real in lines):
            raise Wrong(f"the page shows\n{line}\nwhich is not, or not in this order, in\n{output}")


class Conversation:
    """The frames of one worker."""

    def __init__(self):
        self.worker, self.sent, self.received = None, [], []

    def line(self, line):
        direction, frame = line[:2], json.loads(line[2:])
        if direction == "> ":
            self.worker = self.worker or frame["hello"]["worker"]
            self.sent.append(frame)
        elif direction == "< ":
            self.expect(frame)
        else:
            raise Wrong(f"not a frame: {line}")

    def expect(self, frame):
        deadline = time.monotonic() + PATIENCE
        while True:
            found = next((number for number, real in enumerate(self.received) if fits(frame, real)), None)
            if found is not None:
                del self.received[found]
                return
            if time.monotonic() > deadline:
                raise Wrong(f"the server did not send {json.dumps(frame)}, but {json.dumps(self.received)}")
            self.exchange()

    def exchange(self):
        # Every frame is a sign of life; a request without frames is none.
        frames, self.sent = self.sent or [{"heartbeat": {"request": 0}}], []
        url = f"{URL}/v1/workers/{self.worker}/frames?wait_ms=1000"
        request = urllib.request.Request(url, json.dumps({"frames": frames}).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                self.received += json.load(response)["frames"]
        except urllib.error.HTTPError as error:
            raise Wrong(f"{error}: {error.read().decode()}") from error


def main():
    page, shell, conversation, last, output, count = open(sys.argv[1]).read(), Shell(), Conversation(), "", None, 0
    for line, language, text in blocks(page):
        try:
            if language == "sh":
                for command in commands(text):
                    last, output = command, execute(shell, command)
                    count += 1
                continue
            if language in ("json", "text") and output is not None:
                compare_patiently(shell, last, language, text, output)
            elif language == "frames":
                for frame in text.splitlines():
                    conversation.line(frame)
                    count += 1
                if conversation.sent:
                    conversation.exchange()
            output = None
        except (Wrong, ValueError) as wrong:
            sys.exit(f"{sys.argv[1]}:{line}: {wrong}")
    print(f"{sys.argv[1]}: {count} commands and frames work as shown")


main()
