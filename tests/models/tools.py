"""onward-mcp in front of MCP servers that others wrote: with a handshake and without, over pipes and over HTTP."""

import json
import os
import socket
import subprocess
import sys
import time
import unittest

TOOLS = os.environ["ONWARD_TOOLS"]
FOLDER = os.path.dirname(os.path.abspath(__file__))
EVERYTHING = ["node", os.path.join(FOLDER, "node_modules/@modelcontextprotocol/server-everything/dist/index.js")]
PYTHON = [sys.executable, "-B", os.path.join(FOLDER, "server.py")]


def free_port():
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


class Served:
    """A server over HTTP, for as long as a class of tests lasts."""

    def __init__(self, command, port, **environment):
        self.port = port
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env={**os.environ, **environment}, **quiet)
        self.place = {"http": {"url": f"http://127.0.0.1:{port}/mcp"}}
        ends = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > ends or self.process.poll() is not None:
                    raise
                time.sleep(0.1)

    def end(self):
        self.process.kill()
        self.process.wait()


class Source:
    served = None

    @classmethod
    def tearDownClass(cls):
        if cls.served:
            cls.served.end()

    def run_tools(self, *arguments, text=""):
        command = [TOOLS, json.dumps(self.place), *arguments]
        made = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120)
        return json.loads(made.stdout)

    def call(self, name, **arguments):
        return self.run_tools(name, text=json.dumps(arguments))

    def listed(self):
        return {tool["name"]: json.loads(tool["input"]) for tool in self.run_tools()["tools"]}


class Everything(Source):
    def test_tools(self):
        self.assertEqual(self.listed()["echo"]["required"], ["message"])

    def test_calls(self):
        self.assertEqual(self.call("echo", message="Żółw 🐢")["blocks"], [{"type": "text", "text": "Echo: Żółw 🐢"}])
        weather = self.call("get-structured-content", location="Chicago")
        self.assertEqual(json.loads(weather["structured"]), json.loads(weather["blocks"][0]["text"]))
        image = self.call("get-tiny-image")["blocks"][1]
        self.assertEqual((image["type"], image["media_type"]), ("attachment", "image/png"))
        slow = self.call("trigger-long-running-operation", duration=1, steps=2)
        self.assertIn("completed", slow["blocks"][0]["text"])

    def test_failures(self):
        self.assertTrue(self.call("get-sum", a="x")["is_error"])
        self.assertTrue(self.call("nothing-of-the-kind")["is_error"])


class EverythingOverPipes(Everything, unittest.TestCase):
    place = {"program": {"command": EVERYTHING[0], "arguments": EVERYTHING[1:]}}


class EverythingOverHttp(Everything, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        port = free_port()
        cls.served = Served([*EVERYTHING, "streamableHttp"], port, PORT=str(port))
        cls.place = cls.served.place

    def test_a_server_that_has_gone(self):
        port = free_port()
        served = Served([*EVERYTHING, "streamableHttp"], port, PORT=str(port))
        command = [TOOLS, json.dumps(served.place), "trigger-long-running-operation"]
        calling = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        calling.stdin.write(json.dumps({"duration": 60, "steps": 60}))
        calling.stdin.close()
        time.sleep(2)  # it has begun by then, or is refused below
        served.end()
        report = json.loads(calling.stdout.read())
        calling.stdout.close()
        calling.wait()
        self.assertIn(report["code"], ("mcp_server_gone", "mcp_server_unreachable"))
        self.assertEqual(report["may_have_acted"], report["code"] == "mcp_server_gone")


class Python(Source):
    def test_tools(self):
        self.assertEqual(self.listed()["add"]["required"], ["a", "b"])

    def test_calls(self):
        self.assertEqual(json.loads(self.call("add", a=1, b=9007199254740993)["structured"]), {"result": 9007199254740994})
        self.assertTrue(self.call("fail")["is_error"])


class PythonOverPipes(Python, unittest.TestCase):
    place = {"program": {"command": PYTHON[0], "arguments": [*PYTHON[1:], "stdio"]}}


class PythonOverHttp(Python, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        port = free_port()
        cls.served = Served([*PYTHON, "streamable-http", str(port)], port)
        cls.place = cls.served.place


if __name__ == "__main__":
    unittest.main()
