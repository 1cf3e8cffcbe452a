"""A client that grpcio-tools generated and grpcio runs: a small story, and every kind of refusal with its details.

Run by `cargo xtask test grpc`, which generates onward_pb2 and names the server and its keys in the environment.
"""

import json
import os
import unittest
import uuid

import grpc
from grpc_status import rpc_status

import onward_pb2 as pb
import onward_pb2_grpc as services

# Guards against a hang; no call here takes a second.
LIMIT = 120


def payload(value):
    return pb.Payload(data=json.dumps(value).encode())


def run_key(run, namespace="default"):
    return pb.RunKey(namespace=namespace, id=run)


class Client:
    def __init__(self, key):
        self.channel = grpc.insecure_channel(os.environ["ONWARD_ADDRESS"])
        self.runs = services.RunsStub(self.channel)
        self.metadata = [("authorization", f"Bearer {key}")] if key else []

    def __getattr__(self, method):
        call = getattr(self.runs, method)
        return lambda request, timeout=LIMIT: call(request, timeout=timeout, metadata=self.metadata)


class Story(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = Client(os.environ["ONWARD_KEY"])
        cls.reader = Client(os.environ["ONWARD_READ_KEY"])

    def start(self, run, value=1, **more):
        return self.client.StartRun(pb.StartRequest(run=run_key(run), kind="order", input=payload(value), **more))

    def refusal(self, code, problem_code, call):
        """The call fails with the code, and with one detail that is a problem of ours."""
        with self.assertRaises(grpc.RpcError) as raised:
            call()
        error = raised.exception
        self.assertEqual(error.code(), code, error.details())
        # Raises if the code or the message of the details is not that of the call.
        status = rpc_status.from_call(error)
        self.assertIsNotNone(status)
        self.assertEqual(status.code, code.value[0])
        self.assertEqual(len(status.details), 1)
        problem = pb.Problem()
        self.assertTrue(status.details[0].Unpack(problem), status.details[0].type_url)
        self.assertEqual(problem.code, problem_code)
        self.assertEqual(problem.message, error.details())
        return problem

    def test_a_run_is_started_found_signaled_and_described(self):
        run = f"story-{uuid.uuid4()}"
        value = {"amount": 12, "name": "Zoë 漢字"}
        attribute = pb.Attribute(name="customer", value=pb.AttributeValue(text=run))
        started = self.start(run, value, attributes=[attribute])
        self.assertTrue(started.created)
        self.assertFalse(started.HasField("signal"))
        self.assertFalse(self.start(run, value, attributes=[attribute]).created)

        wanted = pb.AttributeMatch(name="customer", values=[pb.AttributeValue(text=run)])
        statuses = [pb.STATUS_PENDING, pb.STATUS_RUNNING, pb.STATUS_WAITING]
        listed = self.reader.ListRuns(
            pb.RunQuery(namespace="default", kind="order", statuses=statuses, attributes=[wanted], created_from=0)
        )
        self.assertEqual([head.key.id for head in listed.runs], [run])
        closed = pb.RunQuery(namespace="default", statuses=[pb.STATUS_COMPLETED], attributes=[wanted])
        self.assertEqual(len(self.reader.ListRuns(closed).runs), 0)

        signal = pb.Signal(name="paid", payload=payload(None), signal_id="s-1")
        first = self.client.SignalRun(pb.SignalRequest(run=run_key(run), signal=signal))
        again = self.client.SignalRun(pb.SignalRequest(run=run_key(run), signal=signal))
        self.assertFalse(first.repeated)
        self.assertTrue(again.repeated)
        self.assertEqual(first.index, again.index)

        head = self.reader.ReadRun(pb.RunRequest(run=run_key(run)))
        self.assertEqual((head.kind, head.status), ("order", pb.STATUS_PENDING))
        self.assertFalse(head.HasField("version"))
        log = self.reader.ReadLog(pb.LogRequest(run=run_key(run), limit=100))
        events = [event for record in log.records for event in record.body.events]
        self.assertEqual([event.WhichOneof("event") for event in events], ["run_started", "signal_received"])
        self.assertEqual(json.loads(events[0].run_started.input.data), value)
        self.assertEqual(events[1].signal_received.signal_id, "s-1")

    def test_a_run_that_is_not_there_is_not_found(self):
        problem = self.refusal(
            grpc.StatusCode.NOT_FOUND,
            "run_not_found",
            lambda: self.reader.ReadRun(pb.RunRequest(run=run_key("no-such-run"))),
        )
        self.assertEqual(problem.advice, pb.ADVICE_FAIL)
        # One of another namespace is not there either.
        other = pb.RunRequest(run=run_key("no-such-run", "other"))
        self.refusal(grpc.StatusCode.NOT_FOUND, "run_not_found", lambda: self.reader.ReadRun(other))

    def test_an_id_that_is_taken_already_exists(self):
        run = f"taken-{uuid.uuid4()}"
        self.start(run)
        self.refusal(grpc.StatusCode.ALREADY_EXISTS, "run_exists", lambda: self.start(run, value=2))

    def test_a_message_that_cannot_be_decoded_is_invalid(self):
        problem = self.refusal(
            grpc.StatusCode.INVALID_ARGUMENT,
            "message_invalid",
            lambda: self.client.StartRun(pb.StartRequest(kind="order", input=payload(1))),
        )
        self.assertIn("run", problem.message)
        bad_name = pb.StartRequest(run=run_key("a"), kind="no name\n", input=payload(1))
        self.refusal(grpc.StatusCode.INVALID_ARGUMENT, "message_invalid", lambda: self.client.StartRun(bad_name))

    def test_a_payload_that_is_declared_json_and_is_none_is_invalid(self):
        run = f"json-{uuid.uuid4()}"
        self.start(run)
        for data in [b"", b"{bad", b"\xff"]:
            bad = pb.Payload(data=data)
            signal = pb.Signal(name="s", payload=bad)
            calls = [
                lambda: self.client.StartRun(pb.StartRequest(run=run_key("bad"), kind="order", input=bad)),
                lambda: self.client.SignalRun(pb.SignalRequest(run=run_key(run), signal=signal)),
                lambda: self.client.UpdateRun(pb.AskRequest(run=run_key(run), name="u", payload=bad, update_id="u")),
                lambda: self.client.QueryRun(pb.AskRequest(run=run_key(run), name="q", payload=bad)),
            ]
            for call in calls:
                self.refusal(grpc.StatusCode.INVALID_ARGUMENT, "payload_invalid", call)
        text = pb.Payload(data=b"{bad", content_type="text/plain")
        self.client.SignalRun(pb.SignalRequest(run=run_key(run), signal=pb.Signal(name="s", payload=text)))

    def test_a_client_without_a_key_is_unauthenticated(self):
        for key in [None, "onw_nonsense"]:
            call = lambda: Client(key).ReadRun(pb.RunRequest(run=run_key("r")))
            self.refusal(grpc.StatusCode.UNAUTHENTICATED, "unauthenticated", call)

    def test_a_key_for_reading_may_not_start(self):
        start = pb.StartRequest(run=run_key("refused"), kind="order", input=payload(1))
        self.refusal(grpc.StatusCode.PERMISSION_DENIED, "not_allowed", lambda: self.reader.StartRun(start))
        self.refusal(
            grpc.StatusCode.NOT_FOUND, "run_not_found", lambda: self.reader.ReadRun(pb.RunRequest(run=run_key("refused")))
        )

    def test_a_message_with_characters_that_a_header_cannot_have_arrives_whole(self):
        message = "x" * 300 + "é漢"
        terminate = pb.ReasonRequest(run=run_key("no-such-run"), reason=message * 100)
        with self.assertRaises(grpc.RpcError) as raised:
            self.client.TerminateRun(terminate)
        self.assertIsNotNone(rpc_status.from_call(raised.exception))

    def test_a_call_ends_at_its_deadline(self):
        run = f"slow-{uuid.uuid4()}"
        started = self.start(run)
        watch = pb.ChangeRequest(run=run_key(run), next_index=started.head.next_index, wait_ms=LIMIT * 1000)
        with self.assertRaises(grpc.RpcError) as raised:
            self.reader.AwaitChange(watch, timeout=0.3)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertEqual(self.reader.ReadRun(pb.RunRequest(run=run_key(run))).status, pb.STATUS_PENDING)


if __name__ == "__main__":
    unittest.main()
