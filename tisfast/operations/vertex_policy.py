"""Vertex AI's two paths as paths of this server, and where else it may be sent.  Layer 4 (operations)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tisfast.operations.header_policy import HeaderDecision, Policy
from tisfast.operations.http_response import Response, http_error
from tisfast.operations.routes import ROUTES

if TYPE_CHECKING:
    from tisfast.config.settings import VertexSettings
    from tisfast.engine.registry import Registry
    from tisfast.wire.head import Head

REDIRECT: Final = "X-Vertex-Ai-Triton-Redirect"
"""The header that asks for another path, without the slash in front."""
READ_CATEGORIES: Final = ("health", "metadata", "statistics", "model-config")
READ_ENDS: Final = ("/infer", "/v2/repository/index", "sharedmemory/status")


class VertexPolicy:
    """Asked for each head that a connection has not just seen, as HeaderPolicy, which it asks in turn."""

    def __init__(self, settings: VertexSettings, registry: Registry, inner: Policy | None) -> None:
        self._settings, self._registry, self._inner = settings, registry, inner

    def judge(self, head: Head) -> HeaderDecision:
        """The head asks for a path of this server afterwards."""
        refusal = self._aimed(head)
        if refusal is not None:
            return HeaderDecision(refusal, b"")
        return HeaderDecision(None, b"") if self._inner is None else self._inner.judge(head)

    def _aimed(self, head: Head) -> Response | None:
        settings = self._settings
        if head.path == settings.health_route:
            head.aim(head.method, "/v2/health/ready")
            return None
        if head.path != settings.predict_route:
            return http_error(
                400,
                f"{head.path[:300]} is not served at Vertex AI's port, only {settings.predict_route} and "
                f"{settings.health_route}",
            )
        if head.method != "POST":
            return http_error(405, "Method Not Allowed")._replace(headers=(("Allow", "POST"),))
        asked = [value for name, value in head.headers() if name.lower() == REDIRECT.lower().encode()]
        return self._redirected(head, asked[-1].decode("latin-1")) if asked else self._predicted(head)

    def _predicted(self, head: Head) -> Response | None:
        name = self._settings.default_model
        if not name:
            names = {entry.name for entry in self._registry.models()}
            if len(names) != 1:
                return http_error(
                    400,
                    f"predictions are for the only model, and there are {len(names)}: name one with "
                    "--vertex-ai-default-model",
                )
            [name] = names
        head.aim("POST", f"/v2/models/{quote(name, safe='')}/infer")
        return None

    def _redirected(self, head: Head, target: str) -> Response | None:
        path = f"/{target}"
        route = next((route for route in ROUTES if route.pattern.fullmatch(path)), None)
        if route is None or not (route.category in READ_CATEGORIES or path.endswith(READ_ENDS)):
            return http_error(403, f"{REDIRECT}: '{target[:300]}' is no path that Vertex AI's port serves")
        head.aim(route.methods[0], path)
        return None
