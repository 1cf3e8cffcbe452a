"""The clients of onward-llm in front of a model server that others wrote, and compare with the real ones."""

import json
import os
import re
import subprocess
import unittest

ASK = os.environ["ONWARD_ASK"]
FOLDER = os.path.dirname(os.path.abspath(__file__))
TOOLS = [{"name": name, "description": "", "input": '{"type":"object"}'} for name in ("weather", "tide")]


def setUpModule():
    global server, url
    command = [os.path.join(FOLDER, "node_modules/.bin/llmock"), "-p", "0", "-f", os.path.join(FOLDER, "fixtures.json")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in server.stdout:
        found = re.search(r"listening on (http://\S+)", line)
        if found:
            url = found.group(1)
            return
    raise RuntimeError("the server printed no address")


def tearDownModule():
    server.kill()
    server.wait()
    server.stdout.close()


def user(text):
    return {"role": "user", "blocks": [{"type": "text", "text": text}]}


class Client:
    def ask(self, messages, **options):
        request = {"model": self.MODEL, "messages": messages, "tools": TOOLS, **options}
        made = subprocess.run([ASK, self.DIALECT, url + self.PATH], input=json.dumps(request), capture_output=True, text=True, timeout=60)
        self.assertEqual(made.stderr, "")
        lines = [json.loads(line) for line in made.stdout.splitlines()]
        return [line["delta"] for line in lines[:-1]], lines[-1]

    def reply(self, messages, **options):
        deltas, last = self.ask(messages, **options)
        self.assertIn("reply", last)
        return deltas, last["reply"]

    def test_text(self):
        deltas, reply = self.reply([user("hello")], system="Be brief.", max_tokens=99, temperature_milli=500)
        self.assertEqual(reply["blocks"], [{"type": "text", "text": "Hi there, Żółw 🐢!"}])
        self.assertEqual((reply["stop"], reply["model"]), ("end", self.MODEL))
        self.assertEqual("".join(delta["text"] for delta in deltas if delta["type"] == "text"), "Hi there, Żółw 🐢!")

    def test_usage(self):
        usage = self.reply([user("counted")])[1]["usage"]
        self.assertEqual(usage, {"input": 7, "cached_read": 0, "cached_write": 0, "output": 5, "reasoning": 0})

    def test_a_turn_with_tools(self):
        deltas, reply = self.reply([user("weather")])
        text, *calls = reply["blocks"]
        self.assertEqual((text["text"], reply["stop"]), ("Let me see.", "tool_calls"))
        made = [(call["name"], json.loads(call["arguments"])) for call in calls]
        self.assertEqual(made, [("weather", {"city": "Ulm"}), ("tide", {"city": "Gdańsk", "days": 3})])
        pieces = [delta for delta in deltas if delta["type"] == "tool_call_arguments" and delta["call"] == 1]
        self.assertGreater(len(pieces), 1)
        self.assertEqual("".join(piece["text"] for piece in pieces), calls[1]["arguments"])
        results = [{"type": "tool_result", "call_id": call["id"], "blocks": [{"type": "text", "text": "rain"}]} for call in calls]
        messages = [user("weather"), {"role": "assistant", "blocks": reply["blocks"]}, {"role": "tool", "blocks": results}]
        self.assertEqual(self.reply(messages)[1]["blocks"], [{"type": "text", "text": "It rains."}])

    def test_reasoning(self):
        deltas, reply = self.reply([user("think")])
        thought, text = reply["blocks"]
        self.assertEqual((thought["type"], thought["text"], text["text"]), ("reasoning", "I wonder about this.", "Deep."))
        self.assertEqual("".join(delta["text"] for delta in deltas if delta["type"] == "reasoning"), thought["text"])
        self.assertEqual(json.loads(thought["payload"]["json"]), self.THOUGHT)

    def test_refusals(self):
        for text, code, retryable in [
            ("limited", "model_rate_limited", True),
            ("overloaded", "model_overloaded", True),
            ("refused", "model_request_refused", False),
        ]:
            means = self.ask([user(text)])[1]["means"]
            self.assertEqual((means["code"], means["retryable"]), (code, retryable))
        self.assertEqual(self.ask([user("limited")])[1]["means"]["retry_after"], {"secs": 7, "nanos": 0})

    def test_an_answer_that_breaks_off(self):
        _, last = self.ask([user("broken")])
        self.assertEqual(last["means"]["code"], "model_answer_broken")
        arrived = "".join(block["text"] for block in last["error"]["arrived"]["blocks"])
        self.assertTrue(arrived and "one two three four five six".startswith(arrived[:27]), arrived)


class OpenAI(Client, unittest.TestCase):
    DIALECT, PATH, MODEL = "openai", "/v1", "gpt-4o"
    THOUGHT = {"reasoning_content": "I wonder about this."}


class Anthropic(Client, unittest.TestCase):
    DIALECT, PATH, MODEL = "anthropic", "", "claude-sonnet-4-5"
    THOUGHT = {"type": "thinking", "thinking": "I wonder about this.", "signature": "aimock-placeholder-signature"}


if __name__ == "__main__":
    unittest.main()
