"""The table of endpoints gives what the router gives, for every server there is and for every odd path."""

from __future__ import annotations

import importlib
import itertools
import random
import sys
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, Router

from gym_trio.agents import IMPLEMENTATIONS as AGENTS
from gym_trio.environments import IMPLEMENTATIONS as ENVIRONMENTS
from gym_trio.http import MemoryTransport, Origin
from gym_trio.http import Request as Sent
from gym_trio.models import IMPLEMENTATIONS as MODELS
from gym_trio.servers import ENVIRONMENT_SERVERS, JsonEndpoint, RequestBody, send_json
from gym_trio.servers._endpoints import Endpoints

BUILT_IN = {**AGENTS, **ENVIRONMENTS, **MODELS, **ENVIRONMENT_SERVERS}
# What a block cannot do without.
NEEDED = {
    "openai_model": {"openai_base_url": "http://127.0.0.1:9", "openai_model": "m"},
    "scripted_model": {"replies": [[]]},
    "vllm_model": {"base_url": "http://127.0.0.1:9", "model": "m"},
    "openenv": {"base_url": "http://127.0.0.1:9"},
    "verifiers": {"env_id": "x", "python": sys.executable},
    "remote_agent": {"agent_base_url": "http://127.0.0.1:9"},
    "user_simulator_agent": {"user_model_server": {"type": "responses_api_models", "name": "user"}},
}

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
PIECES = (
    "",
    "/",
    "ng-rollout",
    "7-0",
    "v1",
    "responses",
    "run",
    "verify",
    "a b",
    "{x}",
    "é",
    "x\n",
    "training-token-capture",
)


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """Never called: routes are only looked for."""


def found_by_router(router: Router, scope: dict[str, Any]) -> Any:
    """The route and the values from the path; None where the router would answer itself."""
    for route in router.routes:
        match, child = route.matches(scope)
        if match.value == 2:
            return route, child["path_params"]
    return None


def found_by_table(router: Router, scope: dict[str, Any]) -> Any:
    """The same through the table, or "asked the router"."""
    told: list[Any] = []

    class Asked:
        routes = router.routes

        def __call__(self, *_: Any) -> None:
            told.append("asked the router")

    table = Endpoints(Asked())  # type: ignore[arg-type]
    table._call = lambda route, values, *_: told.append((route, values))  # type: ignore[assignment,method-assign]
    table(scope, None, None)  # type: ignore[arg-type]
    (one,) = told
    return one


def check(router: Router, paths: Any) -> int:
    """How many the table has found by itself."""
    alone = 0
    for method, path in itertools.product(METHODS, paths):
        scope = {"type": "http", "method": method, "path": path, "headers": []}
        by_table = found_by_table(router, dict(scope))
        if by_table != "asked the router":
            alone += 1
            assert by_table == found_by_router(router, dict(scope)), (method, path)
    return alone


def odd_paths(router: Router, chance: random.Random) -> list[str]:
    own = [route.path for route in router.routes if isinstance(route, Route)]
    filled = [path.replace("{", "").replace("}", "") for path in own]
    made = ["/" + "/".join(chance.choices(PIECES, k=chance.randint(0, 5))) for _ in range(300)]
    return [*filled, *(path + more for path in filled for more in ("/", "\n", "x", "//")), *own, *made]


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_built_in_servers(name: str) -> None:
    """Every route, every method, and paths that nobody serves."""
    module, _, cls = BUILT_IN[name].partition(":")
    server = getattr(importlib.import_module(module), cls)(name=name, config=NEEDED.get(name, {}))
    endpoints = server.app._app
    assert isinstance(endpoints, Endpoints)
    assert check(endpoints._router, odd_paths(endpoints._router, random.Random(name))) > 5


@pytest.mark.parametrize("seed", range(200))
def test_any_routes(seed: int) -> None:
    """In any order, with patterns that stand before what they match too, convertors, mounts and open methods."""
    print(f"{seed=}")
    chance = random.Random(seed)
    shapes = ["", "/", "/run", "/verify", "/{name}", "/{name}/x", "/{number:int}", "/{rest:path}", "/v1/responses"]
    shapes += ["/ng-rollout/{rollout_id}", "/ng-rollout/{other}", "/ng-rollout/{rollout_id}-x", "/ng-rollout/run"]
    shapes += [f"/ng-rollout/{{rollout_id}}{rest}" for rest in ("/", "/run", "/v1/responses", "/{name}", "x")]
    routes: list[Any] = []
    for shape in chance.choices([shape for shape in shapes if shape], k=chance.randint(1, 8)):
        methods = chance.choice([["POST"], ["GET"], ["GET", "POST"], None])
        routes.append(Route(shape, nothing_at_all(), methods=methods))
    if chance.random() < 0.2:
        routes.insert(chance.randint(0, len(routes)), Mount("/run", routes=[Route("/", nothing_at_all())]))
    router = Router(routes)
    check(router, odd_paths(router, chance))


def test_a_pattern_that_goes_on_behind_the_rollout() -> None:
    """It stands before the one without, and takes what ends as it does."""
    shapes = ("/ng-rollout/{rollout_id}.json", "/ng-rollout/{rollout_id}")
    router = Router([Route(shape, nothing_at_all(), methods=["POST"]) for shape in shapes])
    check(router, ["/ng-rollout/7-0.json", "/ng-rollout/7-0", "/ng-rollout/.json"])


def nothing_at_all() -> Any:
    class Endpoint:
        __call__ = staticmethod(nothing)

    return Endpoint()


async def test_a_function_finds_what_starlette_puts_there() -> None:
    """Its request, the values of the path, and the names of other routes."""

    async def tell(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"{request.path_params} {request.url_for('tell', rollout_id='9').path}")

    app = Endpoints(Router([Route("/ng-rollout/{rollout_id}/tell", tell, methods=["POST"])]))
    transport = MemoryTransport(app)
    answer = await transport.send(Sent("POST", Origin("http", "a", 80), b"/ng-rollout/8%2D0/tell"))
    assert answer.text == "{'rollout_id': '8-0'} /ng-rollout/9/tell"
    answer = await transport.send(Sent("GET", Origin("http", "a", 80), b"/ng-rollout/8/tell"))
    assert answer.status == 405


async def test_below_another_app() -> None:
    """Mounted under a path, the rest of the path counts."""

    async def tell(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.url.path)

    outer = Router([Mount("/inner", app=Endpoints(Router([Route("/tell", tell, methods=["GET"])])))])
    answer = await MemoryTransport(outer).send(Sent("GET", Origin("http", "a", 80), b"/inner/tell"))
    assert (answer.status, answer.text) == (200, "/inner/tell")


async def say(request: RequestBody) -> dict[str, str]:
    """What an endpoint is made around."""
    return {"by": "direct"}


async def refuse(self: Any, scope: Any, receive: Any, send: Any) -> None:
    """A call that an author gives an endpoint."""
    await send_json(send, 418, {"by": "call"})


class Registered:
    """A base that is told of its sub-classes, as by the author's own framework."""

    tags: ClassVar[list[str]] = []

    def __init_subclass__(cls, *, tag: str = "none", **given: Any) -> None:
        super().__init_subclass__(**given)
        cls.tags.append(tag)


T = TypeVar("T")


class Typed(JsonEndpoint, Registered, Generic[T], tag="typed"):
    """Bases behind the endpoint's that have to hear of it."""


class Unheard(JsonEndpoint):
    def __init_subclass__(cls) -> None:
        """What stands behind does not hear of it."""


class OfOneWhoTellsNobody(Unheard):
    __call__ = refuse


class Later(JsonEndpoint):
    """Its call is given to it below."""


Later.__call__ = refuse  # type: ignore[method-assign]


def test_an_endpoint_is_one_base_among_others() -> None:
    """Those behind it are told of the sub-class, with its arguments."""
    assert Registered.tags == ["typed"]
    assert Typed[int] is not Typed


@pytest.mark.parametrize(
    ("kind", "status"), [(JsonEndpoint, 200), (Typed, 200), (Unheard, 200), (OfOneWhoTellsNobody, 418), (Later, 418)]
)
async def test_a_call_of_an_authors_own_sees_every_request(kind: type[JsonEndpoint], status: int) -> None:
    """However it has come to the class."""
    app = Endpoints(Router([Route("/say", kind(say, server="s"), methods=["POST"])]))
    answer = await MemoryTransport(app).send(Sent("POST", Origin("http", "a", 80), b"/say"))
    assert (answer.status, answer.json()) == (status, {"by": "direct" if status == 200 else "call"})
