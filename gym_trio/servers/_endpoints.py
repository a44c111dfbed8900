"""Finding what answers a request: by one look into a table where that is possible, by starlette's router otherwise."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeGuard

from ..http import DirectApp, DirectRoute
from ._body import DirectEndpoint, Receive, Scope, Send

if TYPE_CHECKING:
    from starlette.routing import BaseRoute, Route, Router

__all__ = ["Endpoints"]

_ROLLOUT = "/ng-rollout/"
_UNDER_ROLLOUT = "/ng-rollout/{rollout_id}"
_ONE_NAME = re.compile(r"/\{(\w+)\}")


class Endpoints(DirectApp):
    """The ASGI application of a router, faster, with the same answers.

    A rollout is six requests and more, and to try one pattern after the other takes longer than some handlers do.
    So three kinds of routes stand in tables: paths without parameters, those under ``/ng-rollout/{rollout_id}``, and
    ``/{name}``. The first route that is of no such kind, or whose path an earlier one may have taken, ends the tables:
    from there on the router is asked, in the order of the routes.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._plain: dict[tuple[str, str], Route] = {}
        self._of_rollout: dict[tuple[str, str], Route] = {}
        self._named: dict[str, tuple[str, Route]] = {}
        for route in router.routes:
            if not self._add(route):
                break

    def _add(self, route: BaseRoute) -> bool:
        from starlette.routing import Route

        if type(route) is not Route or route.methods is None or self._named:
            return False
        one_name = _ONE_NAME.fullmatch(route.path)
        table, path = self._plain, route.path
        if path.startswith(_ROLLOUT):
            table, path = self._of_rollout, path.removeprefix(_UNDER_ROLLOUT)
        if one_name is not None:
            self._named = {method: (one_name[1], route) for method in route.methods}
            return True
        if "{" in path or path.startswith(_ROLLOUT) or (path and path[0] != "/"):
            return False
        for method in route.methods:
            table.setdefault((method, path), route)
        return True

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http" or scope.get("root_path") or "router" in scope:  # the latter: mounted in another app
            return self._router(scope, receive, send)
        found = self._find(scope["method"], scope["path"])
        if found is None:
            return self._router(scope, receive, send)
        return self._call(*found, scope, receive, send)

    def find_direct(self, method: str, path: str) -> DirectRoute | None:
        found = self._find(method, path) if method == "POST" else None
        if found is None:
            return None
        route, values = found
        endpoint = route.app
        return DirectRoute(endpoint.direct, values) if _answers_directly(endpoint) else None

    def _find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        route = self._plain.get((method, path))
        if route is not None:
            return route, {}
        if path.startswith(_ROLLOUT):
            rollout_id, slash, rest = path[len(_ROLLOUT) :].partition("/")
            route = self._of_rollout.get((method, slash + rest))
            if route is not None and rollout_id:
                return route, {"rollout_id": rollout_id}
        elif method in self._named and path.rfind("/") == 0 and len(path) > 1 and path[-1] != "\n":
            # A pattern overlooks a line end behind it, and may take such a path for another route's.
            name, route = self._named[method]
            return route, {name: path[1:]}
        return None

    def _call(
        self, route: Route, values: dict[str, str], scope: Scope, receive: Receive, send: Send
    ) -> Awaitable[None]:
        # What the router would have put there.
        scope["router"], scope["route"] = self._router, route
        scope["endpoint"], scope["path_params"] = route.endpoint, values
        app: Callable[[Scope, Receive, Send], Awaitable[None]] = route.app
        return app(scope, receive, send)


def _answers_directly(endpoint: Any) -> TypeGuard[DirectEndpoint]:
    """Not one whose author has given it a call of its own: that is to see every request, as messages."""
    if not isinstance(endpoint, DirectEndpoint):
        return False
    own = next(vars(cls) for cls in type(endpoint).__mro__ if "__call__" in vars(cls) or "direct" in vars(cls))
    return "direct" in own
