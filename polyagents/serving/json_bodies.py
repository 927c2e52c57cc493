"""Bodies of requests are read as other JSON here: an object that has a key twice is refused."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from polyagents.files.json_files import parse_json


class JsonRequest(Request):
    """A request; Starlette's takes the last value of a key."""

    async def json(self) -> Any:
        """Parse the body; raises as `parse_json` does."""
        return parse_json(await self.body())


class JsonRoute(APIRoute):
    """A path whose requests are `JsonRequest`s."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()

        async def read(request: Request) -> Response:
            return await answer(JsonRequest(request.scope, request.receive, request._send))

        return read
