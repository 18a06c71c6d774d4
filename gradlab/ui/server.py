"""What the server does once, before the first visitor, and with every response."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import torch
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradlab.charts import (
    Cells,
    cells,
    movement,
    no_numbers_yet,
    readings,
    river,
    two_numbers,
    unit_of,
    unmeasured,
    with_prediction,
)
from gradlab.experiment import run_experiment
from gradlab.export import to_csv
from gradlab.lessons.demonstrations import Reading
from gradlab.lessons.learning import Optimizer, weight_movement
from gradlab.presets import PRESETS
from gradlab.trail import backward_trail

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'self'",
        # The hash is that of the one inline script in Streamlit 1.67's index.html.
        "script-src 'self' 'sha256-THxz9J9+wf7rhwR2YkXJoSZ13UCmYyC+3lNDv2+8ugA='",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' ws: wss:",
        "worker-src 'self' blob:",
        "frame-ancestors 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "object-src 'none'",
    ]
)
HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]


class SecurityHeaders:
    """Adds `HEADERS` to every response: Streamlit itself sends none of them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


# Streamlit sends its own files uncompressed: 6 MB for a first visit, a third of that compressed.
MIDDLEWARE = [Middleware(SecurityHeaders), Middleware(GZipMiddleware, minimum_size=1000, compresslevel=4)]


@contextlib.asynccontextmanager
async def warm_up(app: Any) -> AsyncIterator[None]:
    """Before the server answers: import everything, take one measurement, draw it, so that no visitor waits for it."""
    # More threads only get in each other's way at these sizes, and badly when many sessions share two cores.
    torch.set_num_threads(1)
    result = run_experiment(PRESETS["reference"].spec)
    trail = backward_trail(result)
    for dark in (False, True):
        river({"one": trail}, dark=dark)
        river({"one": trail, "other": trail}, dark=dark)
        readings(trail, title="warm-up", dark=dark)
        unmeasured(["one", "other"], dark=dark)
        with_prediction(river({"one": trail}, dark=dark), layers=list(trail["layer"]), direction=0, dark=dark)
        movement({kind: weight_movement(result.spec, 1, kind) for kind in Optimizer}, dark=dark)
        for kind in Cells:
            cells([[1.0]], unit=unit_of([[1.0]]), kind=kind, name="one", what="warm-up", dark=dark)
        no_numbers_yet(dark=dark)
        two_numbers(Reading(label="one", value=1.0), Reading(label="other", value=None), dark=dark)
    to_csv(result)
    yield
