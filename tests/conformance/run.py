"""Plays the claims of claims.json with the programs in Rust, Python and TypeScript, and writes docs/guide/conformance.md.

Modes: `embedded` (one process with a directory), `server` (a worker of a server), `crashes` (the process with the directory is
killed at random moments) and `pairs` (a worker of one language begins, one of another language replays all logs and ends them).
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs/guide/conformance.md"
LANGUAGES = {"rust": "Rust", "python": "Python", "typescript": "TypeScript"}
MODES = {"embedded": "embedded", "server": "on a server", "crashes": "under kill -9", "pairs": "across languages"}
#: No program that works needs as long for one claim.
HANG_SECONDS = 120
LINE_BYTES_MAX = 2**26

#: What a repeat of a call without an id is answered if the call before it was executed but not acknowledged.
DONE_BEFORE = {
    "cancel": ["run_closed"],
    "terminate": ["run_closed"],
    "pause": ["run_paused"],
    "resume": ["run_not_paused", "run_closed"],
}


def command(language: str, target: Path) -> list[str]:
    return {
        "rust": [str(target / "examples/conformance")],
        "python": [sys.executable, str(HERE / "python/program.py")],
        "typescript": ["node", str(ROOT / "sdks/typescript/.conformance/program.js")],
    }[language]


class Program:
    """A conformance program that may be killed and started again: calls that were not acknowledged are repeated."""

    def __init__(self, language: str, options: argparse.Namespace, store: str, effects: Path, env: dict[str, str]) -> None:
        self.language = language
        self.argv = [*command(language, options.target), store, str(effects)]
        own = {"PYTHONPATH": str(ROOT / "sdks/python/src"), "CONFORMANCE_MODEL": options.model, "RUST_BACKTRACE": "0"}
        self.env = {**os.environ, **own, **env}
        self.ids = itertools.count()
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.up = asyncio.Event()
        self.is_killed = False
        self.has_died: int | None = None

    async def start(self, **env: str) -> "Program":
        env = {**self.env, **env}
        self.is_killed = False
        self.process = await asyncio.create_subprocess_exec(
            *self.argv, env=env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES_MAX
        )
        self.reading = asyncio.create_task(self.read(self.process))
        return self

    async def read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            try:
                reply = json.loads(line)
            except ValueError:  # cut by a kill
                continue
            if "ready" in reply:
                self.up.set()
            elif (waiting := self.waiting.pop(reply["id"], None)) is not None:
                waiting.done() or waiting.set_result(reply)
        self.up.clear()
        waiting, self.waiting = self.waiting, {}
        code = await process.wait()
        for future in waiting.values():
            if future.done():
                continue
            if self.is_killed:
                future.set_result(None)
            else:
                future.set_exception(AssertionError(f"the {self.language} program ended with {code}"))
        if not self.is_killed:
            self.has_died = code
            self.up.set()

    async def kill(self) -> None:
        self.is_killed = True
        self.process.kill()
        await self.reading

    async def end(self) -> int:
        """Ends the program as its user would, and returns its exit code."""
        self.is_killed = True
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = await asyncio.wait_for(self.process.wait(), HANG_SECONDS)
        await self.reading
        return code

    async def call(self, verb: str, **args: Any) -> Any:
        for attempt in itertools.count(1):
            await self.up.wait()
            if self.has_died is not None:
                raise AssertionError(f"the {self.language} program ended with {self.has_died}")
            number = next(self.ids)
            future = self.waiting[number] = asyncio.get_running_loop().create_future()
            assert self.process.stdin is not None
            with contextlib.suppress(ConnectionError):
                self.process.stdin.write(json.dumps({"id": number, "verb": verb, "args": args}).encode() + b"\n")
                await self.process.stdin.drain()
            if (reply := await future) is not None:
                if attempt > 1 and reply.get("error") in DONE_BEFORE.get(verb, ()):
                    return {"value": None}
                return reply
        raise AssertionError


class Wrong(Exception):
    """A claim does not hold."""


def equal(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise Wrong(f"{what} is {json.dumps(found, ensure_ascii=False)}, not {json.dumps(expected, ensure_ascii=False)}")


def filled(value: Any, run: str) -> Any:
    """Replaces `{run}` by the id of the run."""
    if isinstance(value, str):
        return value.replace("{run}", run)
    if isinstance(value, list):
        return [filled(item, run) for item in value]
    return {key.replace("{run}", run): filled(item, run) for key, item in value.items()} if isinstance(value, dict) else value


class Played:
    """One claim in one mode of one language."""

    def __init__(self, claim: dict[str, Any], run: str, has_crashes: bool = False, is_pair: bool = False) -> None:
        self.claim = filled({**claim, **(claim.get("pairs", {}) if is_pair else {})}, run)
        if is_pair and "paused" in self.claim:
            self.claim.pop("result", None)
            self.claim.pop("effects", None)
        self.run = run
        self.has_crashes = has_crashes
        self.holds = is_pair and not claim.get("no_hold") and not claim.get("plain")
        self.is_pair = is_pair

    async def begin(self, program: Program) -> None:
        claim = self.claim
        given = {"in": claim.get("in"), **({"hold": True} if self.holds else {})}
        started = {"kind": claim["kind"], "input": claim.get("in") if claim.get("plain") else given, "id": self.run}
        if "signal" in claim:
            started["signal"] = claim["signal"]
        self.value(await program.call("start", **started), {})
        if not self.is_pair or self.holds:
            await self.act(program)
        elif self.is_pair and claim.get("do", [[""]])[0][0].endswith("_tool"):
            await self.awaited(program)
        elif self.is_pair and "do" not in claim:
            await program.call("until", run=self.run)
        if self.holds:
            held = asyncio.ensure_future(program.call("wait", run=self.run, key="held", value=True))
            paused = asyncio.ensure_future(program.call("until", run=self.run))
            try:
                await asyncio.wait({held, paused}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                held.cancel()
                paused.cancel()

    async def act(self, program: Program) -> None:
        for number, action in enumerate(self.claim.get("do", ())):
            if action[0] == "both":
                await asyncio.gather(*(self.one(program, f"{number}-{n}", *each) for n, each in enumerate(action[1])))
            else:
                await self.one(program, str(number), *action)

    async def one(self, program: Program, number: str, verb: str, args: dict[str, Any], expected: Any = None) -> None:
        args = dict(args)
        expected = expected or {}
        if verb in ("approve_tool", "disapprove_tool"):
            args["approval"] = await self.awaited(program)
            verb = verb.split("_")[0]
        for name, value in args.items():
            if value == "$id":
                args[name] = await self.awaited(program)
        if verb == "start":
            args["input"] = {"in": args["input"], **({"hold": True} if self.holds else {})}
        elif verb not in ("start_task", "list_runs", "approve", "disapprove", "resolve", "reject"):
            args.setdefault("run", self.run)
        if verb in ("signal", "message", "append", "update", "approve", "disapprove", "resolve", "reject"):
            args.setdefault("id", f"{self.run}-{number}")
        if verb == "list_runs":
            args = {"kind": self.claim["kind"], **args}
        reply = await program.call(verb, **args)
        if "error" in expected:
            found = reply.get("error")
            if found is None or expected["error"] not in (found, "*"):
                raise Wrong(f"{verb} gave {reply}, not the error {expected['error']}")
            if "failure" in expected:
                equal(f"the code of the failure of {verb}", reply["failure"]["code"], expected["failure"])
            return
        value = self.value(reply, args)
        if "value" in expected:
            equal(f"the answer of {verb}", value, expected["value"])
        if "runs" in expected:
            equal("the list of runs", [run["key"]["id"] for run in value["runs"]], expected["runs"])

    async def awaited(self, program: Program) -> str:
        """Returns the id of the approval or promise that the run waits for."""
        while True:
            view = self.value(await program.call("view", run=self.run), {})
            found = [wait["id"] for wait in view["awaiting"] if wait["kind"] in ("approval", "promise")]
            if found:
                return str(found[0])
            if view["outcome"] is not None or view["pause"] is not None:
                # Answered by an attempt that was not acknowledged.
                return str(self.answered)
            await asyncio.sleep(0.01)

    answered = "none"

    def value(self, reply: dict[str, Any], args: dict[str, Any]) -> Any:
        if "error" in reply:
            raise Wrong(f"{args} gave {reply['error']}: {reply['message']}")
        return reply["value"]

    async def end(self, program: Program) -> None:
        claim, language = self.claim, program.language
        if self.is_pair and not self.holds:
            await self.act(program)
        if self.holds:
            await program.call("signal", run=self.run, name="conformance.end", value=None, id="end")
        view = self.value(await program.call("until", run=self.run), {})
        paused = (view.get("pause") or {}).get("message")
        if "paused" in claim:
            wanted = self.pattern(claim["paused"], language)
            if paused is None or not re.search(wanted, paused, re.DOTALL):
                raise Wrong(f"the run paused with {paused!r}, not with {wanted!r}")
            return
        if paused is not None:
            raise Wrong(f"the run paused: {paused}")
        reply = await program.call("result", run=self.run)
        if "failure" in claim:
            self.check_failure(reply, language)
        else:
            result = self.value(reply, {"verb": "result"})
            if "result" in claim:
                equal("the result", result, claim["result"])
            if "result_code" in claim:
                equal("the code", result[0], claim["result_code"])
            if claim.get("contains", "") not in json.dumps(result, ensure_ascii=False):
                raise Wrong(f"the result is {result}, without {claim['contains']!r}")
        for key, value in claim.get("state", {}).items():
            equal(f"the state {key}", view["state"].get(key, {}).get("json"), value)
        for run, status in claim.get("runs", {}).items():
            child = self.value(await program.call("until", run=run), {})
            equal(f"the status of {run}", child["head"]["status"], status)
        log = self.value(await program.call("log", run=self.run), {})
        text = json.dumps(log, ensure_ascii=False)
        for part in claim.get("log", ()):
            if part not in text:
                raise Wrong(f"the log does not contain {part!r}")
        for part in claim.get("not_log", ()):
            if part in text:
                raise Wrong(f"the log contains {part!r}")
        self.events = Counter(event["type"] for record in log for event in record["events"])
        if "events" in claim and not self.has_crashes and not self.is_pair:
            equal("the number of events", dict(sorted(self.events.items())), claim["events"])

    def pattern(self, given: str | dict[str, str], language: str) -> str:
        """Returns the regular expression for a message, which may depend on the language that wrote it."""
        if isinstance(given, str):
            return given
        return "|".join(given.values()) if self.is_pair else given[language]

    def check_failure(self, reply: dict[str, Any], language: str) -> None:
        wanted, failure = self.claim["failure"], reply.get("failure")
        if failure is None:
            raise Wrong(f"the run ended with {reply}, not with a failure")
        if not re.fullmatch(self.pattern(wanted["code"], language), failure["code"]):
            raise Wrong(f"the code of the failure is {failure['code']}, not {wanted['code']}")
        message = self.pattern(wanted.get("message", ""), language)
        if not re.search(message, failure["message"], re.DOTALL):
            raise Wrong(f"the message is {failure['message']!r}, not {message!r}")
        if "retryable" in wanted:
            equal("retryable", failure["retryable"], wanted["retryable"])
        details = failure.get("details") or {}
        if "data" in wanted:
            equal("the data of the failure", details.get("data"), wanted["data"])
        # Errors of Rust have neither.
        if language != "rust" and not self.is_pair:
            thrown = {"python": "ValueError", "typescript": "RangeError"}[language]
            if wanted.get("type"):
                equal("the type", details.get("type"), thrown)
            if wanted.get("stack", "") not in (details.get("stack") or ""):
                raise Wrong(f"the stack has no {wanted['stack']}: {details.get('stack')}")

    def check_effects(self, done: dict[str, list[str]], kills: int) -> None:
        expected = {**self.claim.get("effects_of", {})}
        if "effects" in self.claim:
            expected[self.run] = self.claim["effects"]
        for run, wanted in expected.items():
            check_order(run, wanted, done.get(run, []), kills if self.has_crashes else None)


def check_order(run: str, wanted: list[Any], found: list[str], kills: int | None) -> None:
    """Checks what was executed: exactly in this order; with kills, what was not yet recorded may be repeated, but only directly.

    A list in `wanted` was executed concurrently.
    """
    message = f"{run} executed {found}, not {wanted}"
    groups = [(list(items) if isinstance(items, list) else [items]) for items in wanted]
    groups = [list(itertools.chain(*same)) for _, same in itertools.groupby(groups, key=lambda group: sorted(set(group)))]
    rest = list(found)
    for group in groups:
        executed = list(itertools.takewhile(lambda name: name in group, rest))
        rest = rest[len(executed) :]
        counts, needed = Counter(executed), Counter(group)
        if kills is None and counts != needed:
            raise Wrong(message)
        if kills is not None:
            is_repeated = any(counts[name] > needed[name] * (kills + 1) for name in counts)
            if set(counts) != set(needed) or is_repeated:
                raise Wrong(f"{message} with {kills} kills")
    if rest:
        raise Wrong(message)


def effects_in(path: Path) -> dict[str, list[str]]:
    done: dict[str, list[str]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        run, name = line.rsplit(" ", 1)
        done.setdefault(run, []).append(name)
    return done


class Server:
    """`onward dev` on a directory."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.argv = [str(options.onward), "dev", "--port", "0", "--json", "--log-level", "error", "--data", str(directory)]

    async def __aenter__(self) -> str:
        self.process = await asyncio.create_subprocess_exec(*self.argv, stdout=asyncio.subprocess.PIPE)
        return await address(self.process)

    async def __aexit__(self, *_: Any) -> None:
        self.process.kill()
        await self.process.wait()


async def address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    line = await process.stdout.readline()
    return str(json.loads(line)["url"])


Outcome = dict[str, str | None]


class Suite:
    def __init__(self, options: argparse.Namespace, claims: list[dict[str, Any]], folder: Path) -> None:
        self.options = options
        self.claims = claims
        self.folder = folder
        self.events: dict[str, dict[str, Counter[str]]] = {}

    async def attempt(self, outcome: Outcome, name: str, playing: Any) -> None:
        """Awaits a part of a claim, and keeps why it does not hold."""
        if outcome.get(name) is not None:
            playing.close()
            return
        try:
            await asyncio.wait_for(playing, HANG_SECONDS)
            outcome[name] = None
        except asyncio.TimeoutError:
            outcome[name] = f"nothing came within {HANG_SECONDS} s"
        except (Wrong, AssertionError) as wrong:
            outcome[name] = str(wrong)

    def check_effects(self, played: list[Played], names: list[str], outcome: Outcome, effects: Path, kills: int) -> None:
        done = effects_in(effects)
        for name, each in zip(names, played, strict=True):
            try:
                if outcome[name] is None:
                    each.check_effects(done, kills)
            except Wrong as wrong:
                outcome[name] = str(wrong)

    def claims_of(self, *languages: str) -> list[dict[str, Any]]:
        return [claim for claim in self.claims if not any(language in claim.get("not_in", {}) for language in languages)]

    async def alone(self, language: str, mode: str, env: dict[str, str] | None = None, kills: int = 0, seed: int = 0) -> Outcome:
        folder = Path(tempfile.mkdtemp(prefix=f"{language}-{mode}-", dir=self.folder))
        effects = folder / "effects"
        claims = self.claims_of(language)
        names = [claim["name"] for claim in claims]
        outcome: Outcome = {}
        async with contextlib.AsyncExitStack() as stack:
            store = str(folder / "data")
            if mode in ("server", "server-crashes"):
                store = await stack.enter_async_context(Server(self.options, folder / "data"))
            program = await Program(language, self.options, store, effects, env or {}).start()
            played = [Played(claim, claim["name"], has_crashes=kills > 0) for claim in claims]

            async def play(each: Played) -> None:
                await each.begin(program)
                await each.end(program)

            if kills:
                playing = asyncio.gather(*(self.attempt(outcome, each.run, play(each)) for each in played))
                kills = await self.kill_often(program, playing, kills, random.Random(seed))
                await playing
                if kills == 0:
                    raise SystemExit("all claims ended before the first kill: use a smaller --kill-within")
            else:
                await asyncio.gather(*(self.attempt(outcome, each.run, play(each)) for each in played))
            code = await program.end()
            if code != 0:
                outcome = {name: wrong or f"the program ended with {code}" for name, wrong in outcome.items()}
        self.check_effects(played, names, outcome, effects, kills)
        for each in played:
            if mode in ("embedded", "server") and hasattr(each, "events"):
                self.events.setdefault(each.run, {})[f"{language} {mode}"] = each.events
        return outcome

    async def kill_often(self, program: Program, playing: Any, kills: int, chance: random.Random) -> int:
        """Kills the program at random moments after it started, and returns how often."""
        for number in range(kills):
            await program.up.wait()
            await asyncio.wait([playing], timeout=chance.uniform(0, self.options.kill_within))
            if playing.done():
                return number
            await program.kill()
            await program.start()
        return kills

    async def pair(self, first: str, second: str, env: dict[str, str] | None = None) -> Outcome:
        folder = Path(tempfile.mkdtemp(prefix=f"{first}-{second}-", dir=self.folder))
        effects = folder / "effects"
        claims = [claim for claim in self.claims_of(first, second) if not {first, second} & claim.get("no_pairs", {}).keys()]
        names = [claim["name"] for claim in claims]
        played = [Played(claim, claim["name"], is_pair=True) for claim in claims]
        outcome: Outcome = {}
        async with Server(self.options, folder / "data") as url:
            program = await Program(first, self.options, url, effects, {}).start(CONFORMANCE_OLD="1")
            await asyncio.gather(*(self.attempt(outcome, each.run, each.begin(program)) for each in played))
            await program.kill()
            program = await Program(second, self.options, url, effects, env or {}).start()
            await asyncio.gather(*(self.attempt(outcome, each.run, each.end(program)) for each in played))
            await program.end()
        for each in played:
            each.has_crashes = True
        self.check_effects(played, names, outcome, effects, 1)
        return outcome


def page(claims: list[dict[str, Any]], outcomes: dict[tuple[str, ...], Outcome]) -> str:
    """Returns docs/guide/conformance.md."""

    def cell(name: str, language: str, mode: str) -> str:
        keys = [key for key in outcomes if key[0] == mode and language in key[1:]]
        found = [outcomes[key][name] for key in keys if name in outcomes[key]]
        if not found:
            return "–"
        return "yes" if all(wrong is None for wrong in found) else "no"

    modes = list(dict.fromkeys(key[0] for key in outcomes))
    lines = [
        "# Conformance",
        "",
        f"The {len(claims)} claims below hold for code in Rust, Python and TypeScript, except where the table names the languages.",
        "`cargo xtask conformance` plays each with a program in each language, and fails if this page is not the outcome.",
        "",
        "- embedded: in one process with a directory.",
        "- server: a worker of a server.",
        "- crashes: the process with the directory is killed with `kill -9` at random moments and started again.",
        "  No recorded step is executed again, and nothing that was acknowledged is lost.",
        "- pairs: a worker in this language begins the run, and a worker in another language replays its log and ends it, and the other",
        "  way round.",
        "  The combinators of Rust (`join!`, `select!`, `join_all`, `race`) and its awaiting handlers of updates number their branches,",
        "  which those of the other languages do not: logs of code that uses them replay in Rust only.",
        "",
        f"| claim | {' | '.join(LANGUAGES.values())} |",
        f"|---|{'---|' * len(LANGUAGES)}",
    ]
    short = {"embedded": "embedded", "server": "server", "crashes": "crashes", "pairs": "pairs"}
    for claim in claims:
        cells = []
        for language in LANGUAGES:
            states = {mode: cell(claim["name"], language, mode) for mode in modes}
            holds = [short[mode] for mode in modes if states[mode] == "yes"]
            fails = [short[mode] for mode in modes if states[mode] == "no"]
            text = "all" if len(holds) == len(modes) else ", ".join(holds) or "–"
            reason = claim.get("not_in", {}).get(language)
            cells.append(f"no: {reason}" if reason else text + (f"; not: {', '.join(fails)}" if fails else ""))
        lines.append(f"| {claim['says']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


#: What breaks on purpose, in Python, and what the runner must then say about a claim.
BROKEN = {
    "effect": ("embedded", "step-once", "executed"),
    "result": ("embedded", "step-once", "the result is"),
    "divergence": ("pairs", "step-once", "paused"),
    "lost": ("embedded", "signal-once", "nothing came within"),
}


async def test_the_runner(options: argparse.Namespace, claims: list[dict[str, Any]], folder: Path) -> list[str]:
    """Returns which broken claims the runner does not notice."""
    global HANG_SECONDS
    missed = []
    for broken, (mode, name, said) in BROKEN.items():
        suite = Suite(options, [claim for claim in claims if claim["name"] == name], folder)
        HANG_SECONDS, before = (2 if broken == "lost" else HANG_SECONDS), HANG_SECONDS
        env = {"CONFORMANCE_BREAK": broken}
        playing = suite.pair("python", "python", env) if mode == "pairs" else suite.alone("python", mode, env)
        outcome = await playing
        HANG_SECONDS = before
        if said not in (outcome[name] or ""):
            missed.append(f"a program with a broken {broken} passed: {outcome[name]}")
    return missed


async def main(options: argparse.Namespace) -> int:
    claims = json.loads((HERE / "claims.json").read_text())
    if len({claim["name"] for claim in claims}) != len(claims):
        raise SystemExit("two claims have one name")
    claims = [claim for claim in claims if re.search(options.only, claim["name"])]
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    model = await asyncio.create_subprocess_exec(str(options.target / "scripted-model"), "0", stdout=asyncio.subprocess.PIPE)
    options.model = await address(model)
    outcomes: dict[tuple[str, ...], Outcome] = {}
    wrong: list[str] = []

    def note(key: tuple[str, ...], outcome: Outcome, began: float) -> None:
        outcomes[key] = outcome
        failed = {name: why for name, why in outcome.items() if why is not None}
        count = f"{len(outcome) - len(failed)} of {len(outcome)} claims hold"
        print(f"{' '.join(key)}: {count}, in {time.time() - began:.1f} s", flush=True)
        wrong.extend(f"{' '.join(key)}: {name}: {why}" for name, why in failed.items())
        for line in wrong[len(wrong) - len(failed) :]:
            print(f"  {line}", flush=True)

    try:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            suite = Suite(options, claims, Path(folder))
            ends = time.time() + 60 * options.minutes
            for mode in options.modes:
                if mode == "pairs":
                    for first, second in itertools.permutations(options.languages, 2):
                        began = time.time()
                        note(("pairs", first, second), await suite.pair(first, second), began)
                    continue
                for language in options.languages:
                    began = time.time()
                    kills = options.kills if "crashes" in mode else 0
                    if kills:
                        print(f"{mode} {language}: --seed {seed}", flush=True)
                    note((mode, language), await suite.alone(language, mode, None, kills, seed), began)
            while time.time() < ends and not wrong:
                seed += 1
                for language, mode in itertools.product(options.languages, ("crashes", "server-crashes")):
                    began = time.time()
                    print(f"{mode} {language}: --seed {seed}", flush=True)
                    note((mode, language), await suite.alone(language, mode, None, options.kills * 3, seed), began)
            if options.self_test:
                wrong.extend(await test_the_runner(options, claims, Path(folder)))
            options.events and show_events(suite)
    finally:
        with contextlib.suppress(ProcessLookupError):
            model.kill()
        await model.wait()
    if wrong:
        print("\n".join(["", f"{len(wrong)} do not hold:", *wrong]))
        if options.seed is None:
            print(f"repeat with --seed {seed}")
        return 1
    if options.page:
        text = page(claims, outcomes)
        if options.write:
            PAGE.write_text(text)
        elif not PAGE.exists() or PAGE.read_text() != text:
            print(f"{PAGE.relative_to(ROOT)} is not up to date: run `cargo xtask conformance` with ONWARD_WRITE=1")
            return 1
    print(f"all {len(claims)} claims hold")
    return 0


def show_events(suite: Suite) -> None:
    """Prints the events of each claim, and where languages or modes differ."""
    for name, found in suite.events.items():
        counts = {json.dumps(dict(sorted(events.items()))) for events in found.values()}
        print(name, *counts, sep="\n  ")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=ROOT / "target/debug", help="the folder of the built programs")
    parser.add_argument("--onward", type=Path, default=None, help="the server")
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, default=list(LANGUAGES))
    parser.add_argument("--modes", nargs="+", choices=[*MODES, "server-crashes"], default=list(MODES))
    parser.add_argument("--only", default="", help="a regular expression for the names of claims")
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--kill-within", type=float, default=0.1, help="seconds after the start of the process")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--minutes", type=float, default=0, help="repeat the crashes for so long")
    parser.add_argument("--self-test", action="store_true", help="also play programs that break claims")
    parser.add_argument("--page", action="store_true", help="compare the page with the outcome")
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--events", action="store_true", help="print the recorded events")
    parser.add_argument("--patience", type=float, default=HANG_SECONDS, help="seconds for one claim")
    options = parser.parse_args()
    globals()["HANG_SECONDS"] = options.patience
    options.onward = options.onward or options.target / "onward"
    return options


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(asyncio.run(main(arguments())))
