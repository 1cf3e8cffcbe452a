"""A generated client starts, signals, reads and lists runs. The types are part of the test: mypy checks this file."""

import os
import unittest
from typing import TypeVar

from onward_client import AuthenticatedClient
from onward_client.api.runs import get_run, list_events, list_runs, signal_run, start_run, terminate_run
from onward_client.models import (
    Appended,
    ErrorCode,
    EventPage,
    JsonPayload,
    Problem,
    Reason,
    RunPage,
    RunStartedEvent,
    RunView,
    SendSignal,
    SignalReceivedEvent,
    StartedRun,
    StartRun,
    Status,
)

URL, KEY = os.environ["ONWARD_URL"], os.environ["ONWARD_KEY"]

T = TypeVar("T")


def found(wanted: type[T], response: object) -> T:
    assert isinstance(response, wanted), response
    return response


class Runs(unittest.TestCase):
    def setUp(self) -> None:
        self.client = AuthenticatedClient(base_url=URL, token=KEY)
        self.addCleanup(self.client.get_httpx_client().close)

    def start(self, id: str) -> StartedRun:
        body = StartRun(kind="order", id=id, input_={"item": "a teapot"})
        return found(StartedRun, start_run.sync(client=self.client, body=body))

    def signal(self, id: str) -> Appended:
        body = SendSignal(name="payment", payload=42, signal_id="one")
        return found(Appended, signal_run.sync(id, client=self.client, body=body))

    def test_a_run_is_started_once_signaled_read_and_listed(self) -> None:
        self.assertTrue(self.start("py-1").created)
        self.assertFalse(self.start("py-1").created)
        self.assertEqual(self.signal("py-1").index, 1)
        run = found(RunView, get_run.sync("py-1", client=self.client))
        self.assertEqual(run.status, Status.PENDING)
        self.assertEqual(found(JsonPayload, run.input_).json, {"item": "a teapot"})
        self.assertEqual(run.counts.signals_received, 1)
        self.assertIsNone(run.pause)
        page = found(RunPage, list_runs.sync(client=self.client, kind="order", status=[Status.PENDING], limit=10))
        self.assertIn("py-1", [listed.id for listed in page.runs])

    def test_the_log_is_typed(self) -> None:
        self.start("py-2")
        self.signal("py-2")
        found(Appended, terminate_run.sync("py-2", client=self.client, body=Reason(reason="enough")))
        page = found(EventPage, list_events.sync("py-2", client=self.client))
        started, signaled, terminated = [logged.event for logged in page.events]
        self.assertGreater(int(found(RunStartedEvent, started).seed), 0)
        self.assertEqual(found(JsonPayload, found(SignalReceivedEvent, signaled).payload).json, 42)
        self.assertEqual(terminated.type_, "terminate_requested")

    def test_an_error_has_a_code_of_the_document(self) -> None:
        missing = found(Problem, get_run.sync("nope", client=self.client))
        self.assertEqual(missing.code, ErrorCode.RUN_NOT_FOUND)
        with AuthenticatedClient(base_url=URL, token="onw_none") as stranger:
            self.assertEqual(found(Problem, list_runs.sync(client=stranger)).code, ErrorCode.UNAUTHENTICATED)


if __name__ == "__main__":
    unittest.main()
