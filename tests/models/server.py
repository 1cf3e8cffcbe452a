"""An MCP server of the protocol's own package, in its version without a handshake: `server.py stdio`, or `server.py streamable-http PORT`."""

import sys

from mcp.server import MCPServer

server = MCPServer("demo")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("no")


if sys.argv[1] == "stdio":
    server.run(transport="stdio")
else:
    server.run(transport="streamable-http", port=int(sys.argv[2]))
