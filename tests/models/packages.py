"""The scripted model as OpenAI's and Anthropic's own packages see it."""

import json
import os
import unittest
import urllib.request

import anthropic
import openai

URL = os.environ["SCRIPTED_MODEL_URL"]

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
USER = [{"role": "user", "content": "weather for 3 days"}]
ARGUMENTS = {"city": "weather for 3 days", "days": 3}


def control(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(URL + path, data, method=method)) as answer:
        return json.loads(answer.read() or "null")


def next_answer(**answer):
    control("POST", "/script/answers", answer)


class Scripted(unittest.TestCase):
    def setUp(self):
        control("DELETE", "/script")

    def request_count(self):
        return control("GET", "/script")["request_count"]


class OpenAI(Scripted):
    TOOLS = [{"type": "function", "function": {"name": "weather", "description": "tells it", "parameters": PARAMETERS}}]

    def setUp(self):
        super().setUp()
        self.client = openai.OpenAI(base_url=URL + "/v1", api_key="k", max_retries=0)

    def ask(self, messages=USER, **options):
        return self.client.chat.completions.create(model="scripted", messages=messages, **options)

    def test_an_answer_in_one_piece(self):
        answer = self.ask([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}])
        self.assertEqual(answer.choices[0].message.content, "You said: hello")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual((answer.usage.prompt_tokens, answer.usage.completion_tokens), (5, 4))
        self.assertEqual(control("GET", "/script")["requests"][0]["body"]["messages"][1]["content"], "hello")

    def test_a_turn_with_tools(self):
        first = self.ask(tools=self.TOOLS).choices[0]
        self.assertEqual(first.finish_reason, "tool_calls")
        [call] = first.message.tool_calls
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("weather", ARGUMENTS))
        messages = USER + [first.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
        reply = self.ask(messages, tools=self.TOOLS)
        self.assertEqual(reply.choices[0].message.content, "weather says: rain")
        self.assertGreater(reply.usage.prompt_tokens_details.cached_tokens, 0)
        with self.assertRaises(openai.BadRequestError):
            self.ask(messages[:2])

    def test_a_stream_is_the_same_answer(self):
        whole = self.ask(tools=self.TOOLS)
        with self.client.chat.completions.stream(
            model="scripted", messages=USER, tools=self.TOOLS, stream_options={"include_usage": True}
        ) as stream:
            events = [event.type for event in stream]
            final = stream.get_final_completion()
        self.assertIn("tool_calls.function.arguments.delta", events)
        self.assertIn("content.delta", events)
        self.assertEqual(final.choices[0].message.content, whole.choices[0].message.content)
        self.assertEqual(final.choices[0].message.tool_calls[0].id, whole.choices[0].message.tool_calls[0].id)
        self.assertEqual(final.choices[0].message.tool_calls[0].function.arguments, json.dumps(ARGUMENTS, separators=(",", ":")))
        self.assertEqual(final.usage.total_tokens, whole.usage.total_tokens)

    def test_interleaved_calls(self):
        calls = [{"call": {"name": "weather", "arguments": json.dumps({"city": city, "days": 1})}} for city in ("Ulm", "Gdańsk")]
        next_answer(parts=calls, fault="interleaved")
        with self.client.chat.completions.stream(model="scripted", messages=USER, tools=self.TOOLS) as stream:
            stream.until_done()
            made = stream.get_final_completion().choices[0].message.tool_calls
        self.assertEqual([json.loads(call.function.arguments)["city"] for call in made], ["Ulm", "Gdańsk"])

    def test_a_refusal(self):
        next_answer(parts=[{"refusal": "I will not."}])
        with self.client.chat.completions.stream(model="scripted", messages=USER) as stream:
            self.assertIn("refusal.delta", [event.type for event in stream])
            self.assertEqual(stream.get_final_completion().choices[0].message.refusal, "I will not.")

    def test_errors(self):
        next_answer(fault={"rate_limited": {"retry_after_seconds": 7}})
        with self.assertRaises(openai.RateLimitError) as limited:
            self.ask()
        self.assertEqual(limited.exception.response.headers["retry-after"], "7")
        self.assertEqual(limited.exception.code, "rate_limit_exceeded")
        for fault, error in [
            ("server_error", openai.InternalServerError),
            ("overloaded", openai.InternalServerError),
            ("key_refused", openai.AuthenticationError),
            ("context_too_long", openai.BadRequestError),
        ]:
            next_answer(fault=fault)
            with self.assertRaises(error) as raised:
                self.ask()
        self.assertEqual(raised.exception.code, "context_length_exceeded")
        next_answer(fault="error_inside")
        with self.assertRaises(openai.APIError):
            list(self.ask(stream=True))
        next_answer(parts=[{"text": "one two three four"}], fault={"break_after": {"chunks": 3}})
        with self.assertRaises(Exception):
            list(self.ask(stream=True))
        self.assertEqual(self.request_count(), 7)

    def test_the_package_tries_again_and_is_counted(self):
        for fault in ("server_error", "overloaded"):
            next_answer(fault=fault)
        answer = self.client.with_options(max_retries=2).chat.completions.create(model="scripted", messages=USER)
        self.assertTrue(answer.choices[0].message.content)
        self.assertEqual(self.request_count(), 3)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["scripted"])


class Anthropic(Scripted):
    TOOLS = [{"name": "weather", "description": "tells it", "input_schema": PARAMETERS}]

    def setUp(self):
        super().setUp()
        self.client = anthropic.Anthropic(base_url=URL, api_key="k", max_retries=0)

    def ask(self, messages=USER, **options):
        return self.client.messages.create(model="scripted", max_tokens=2048, messages=messages, **options)

    def test_an_answer_in_one_piece(self):
        answer = self.ask([{"role": "user", "content": "hello"}], system="Be brief.")
        self.assertEqual((answer.content[0].text, answer.stop_reason), ("You said: hello", "end_turn"))
        self.assertEqual((answer.usage.input_tokens, answer.usage.output_tokens), (5, 4))

    def test_a_turn_with_tools_and_reasoning(self):
        thinking = {"type": "enabled", "budget_tokens": 1024}
        first = self.ask(tools=self.TOOLS, thinking=thinking)
        self.assertEqual([block.type for block in first.content], ["thinking", "text", "tool_use"])
        call = first.content[2]
        self.assertEqual((call.input, first.stop_reason), (ARGUMENTS, "tool_use"))
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]}
        messages = USER + [{"role": "assistant", "content": first.content}, result]
        reply = self.ask(messages, tools=self.TOOLS, thinking=thinking)
        self.assertEqual(reply.content[1].text, "weather says: rain")
        self.assertGreater(reply.usage.cache_read_input_tokens, 0)
        with self.assertRaises(anthropic.BadRequestError):
            self.ask(messages[:2])
        forged = [block.model_dump() for block in first.content]
        forged[0]["thinking"] += "!"
        with self.assertRaises(anthropic.BadRequestError):
            self.ask(USER + [{"role": "assistant", "content": forged}, result])

    def test_a_stream_is_the_same_answer(self):
        options = {"tools": self.TOOLS, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        whole = self.ask(**options)
        with self.client.messages.stream(model="scripted", max_tokens=2048, messages=USER, **options) as stream:
            events = {event.type for event in stream}
            final = stream.get_final_message()
        self.assertLessEqual({"text", "thinking", "signature", "input_json", "message_stop"}, events)
        self.assertEqual([block.model_dump(exclude_none=True) for block in final.content], [block.model_dump(exclude_none=True) for block in whole.content])
        self.assertEqual((final.stop_reason, final.id), (whole.stop_reason, whole.id))
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_a_refusal(self):
        next_answer(parts=[{"refusal": "I will not."}])
        with self.client.messages.stream(model="scripted", max_tokens=9, messages=USER) as stream:
            self.assertEqual(stream.get_final_message().stop_reason, "refusal")

    def test_errors(self):
        next_answer(fault={"rate_limited": {"retry_after_seconds": 7}})
        with self.assertRaises(anthropic.RateLimitError) as limited:
            self.ask()
        self.assertEqual(limited.exception.response.headers["retry-after"], "7")
        self.assertEqual(limited.exception.body["error"]["type"], "rate_limit_error")
        for fault, error, status in [
            ("server_error", anthropic.InternalServerError, 500),
            ("overloaded", anthropic.APIStatusError, 529),
            ("key_refused", anthropic.AuthenticationError, 401),
            ("context_too_long", anthropic.BadRequestError, 400),
        ]:
            next_answer(fault=fault)
            with self.assertRaises(error) as raised:
                self.ask()
            self.assertEqual(raised.exception.status_code, status)
        next_answer(fault="error_inside")
        with self.assertRaises(anthropic.APIError):
            list(self.ask(stream=True))
        next_answer(parts=[{"text": "one two three four"}], fault={"break_after": {"chunks": 4}})
        with self.assertRaises(Exception):
            list(self.ask(stream=True))
        self.assertEqual(self.request_count(), 7)

    def test_a_length_is_needed(self):
        with self.assertRaises(anthropic.BadRequestError):
            self.client.post("/v1/messages", body={"model": "m", "messages": USER}, cast_to=object)


if __name__ == "__main__":
    unittest.main()
