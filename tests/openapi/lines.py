"""Lines of JSON, a media type that the fuzzer does not know by itself."""

import json

import schemathesis

LINES = "application/x-ndjson"


@schemathesis.serializer(LINES)
def write(context, value):
    return value if isinstance(value, bytes) else str(value).encode("utf8", "surrogatepass")


@schemathesis.deserializer(LINES)
def read(context, response):
    text = response.content.decode("utf8")
    # Only a line feed ends a line; `splitlines` also splits at characters that a text may have, such as U+2028.
    for line in filter(None, text.split("\n")):
        json.loads(line)
    return text
