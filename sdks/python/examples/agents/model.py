"""The model of the examples: OpenAI's if `OPENAI_API_KEY` is set, otherwise a scripted one.

For the scripted one, start `scripted-model` of the Onward repository and put the address that it prints into
`SCRIPTED_MODEL_URL`.
"""

import os
from typing import Any

NAME = "talker"


def models() -> dict[str, Any]:
    """Returns the option `models` of `Onward`: a provider and a model of it."""
    if os.environ.get("OPENAI_API_KEY"):
        provider = {"api_format": "openai", "base_url": "https://api.openai.com/v1", "key_env": "OPENAI_API_KEY"}
        return {"providers": {"openai": provider}, "models": {NAME: {"provider": "openai", "name": "gpt-4o-mini"}}}
    url = os.environ.get("SCRIPTED_MODEL_URL")
    if url is None:
        raise SystemExit("set OPENAI_API_KEY, or SCRIPTED_MODEL_URL to the address of a scripted model")
    provider = {"api_format": "openai", "base_url": f"{url}/v1"}
    return {"providers": {"local": provider}, "models": {NAME: {"provider": "local", "name": "scripted"}}}
