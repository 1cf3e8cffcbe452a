"""The native module: the bridge to the engine. Every text is JSON."""

from typing import Any

class NativeError(Exception):
    """A call failed; the only argument is the JSON text of the error."""

class Stopped(BaseException):
    """The code of a run must stop: unwind it and hand back without an end."""

class Bridge:
    @staticmethod
    def start(settings: str) -> Bridge:
        """Opens the store or connects; blocks."""
    @property
    def namespace(self) -> str: ...
    @property
    def fd(self) -> int:
        """The file descriptor that is readable when there is work."""
    def take(self, max: int) -> list[tuple[Any, ...]]:
        """Returns up to `max` messages, without waiting."""
    def call(self, run: int, verb: str, args: str) -> tuple[Any, ...]:
        """Makes a call of the code of a run."""
    def hand_back(self, played: list[tuple[int, tuple[bool, str] | None]]) -> None:
        """Ends activations: the run, and its end if the code ended."""
    def finish(self, finished: list[tuple[int, bool, str]]) -> None:
        """Reports the results of jobs."""
    def task(self, job: int, verb: str, args: str) -> str:
        """Reports progress of a task."""
    def answer_query(self, query: int, answer: tuple[bool, str] | None) -> None: ...
    def request(self, verb: str, args: str) -> int:
        """Begins a request and returns its number."""
    def abandon(self, request: int) -> None: ...
    def shut_down(self, timeout_ms: int) -> None: ...
    def stats(self) -> tuple[int, int, int, int]:
        """Returns the numbers of runs, jobs, requests and queued messages."""

def version() -> str: ...
