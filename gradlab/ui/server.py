"""What the server does once, before the first visitor, and with every response."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from collections.abc import AsyncIterator
from typing import Any

import torch
import torch._dynamo  # PyTorch would load it with a visitor's first optimizer or checkpoint, which takes most of a second
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradlab.charts import (
    Band,
    Cells,
    FactorRow,
    OutcomeCell,
    against_claim,
    bands,
    both_kinds,
    cells,
    factor_map,
    factors,
    movement,
    no_numbers_yet,
    outcomes,
    readings,
    river,
    two_numbers,
    unit_of,
    unmeasured,
    verdict_grid,
    with_prediction,
)
from gradlab.ensemble import run_ensemble
from gradlab.experiment import run_experiment
from gradlab.export import to_csv
from gradlab.lessons.both_kinds import both_kinds as both_kinds_of
from gradlab.lessons.demonstrations import Reading
from gradlab.lessons.learning import Optimizer, weight_movement
from gradlab.lessons.myths import MYTHS
from gradlab.presets import PRESETS
from gradlab.spec import Activation
from gradlab.theory import factor_map as map_of
from gradlab.trail import Quantity, backward_trail
from gradlab.ui.static_files import StaticFiles

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
        # Not 'none': Streamlit Cloud shows an app in a frame of the app's own host (streamlit#5084).
        "frame-ancestors 'self'",
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


MIDDLEWARE = [
    Middleware(SecurityHeaders),
    Middleware(StaticFiles),
    Middleware(GZipMiddleware, minimum_size=1000, compresslevel=4),  # whatever else is large
]


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""The options' numbers in glibc's malloc.h."""
MEGABYTE = 2**20


def give_memory_back() -> None:
    """Have freed memory used again, or given back to the system; without glibc, nothing.

    Each visit is a thread, and glibc would give each a pool of its own, of whose freed memory the others have nothing: two
    pools for all. And it would keep room for arrays as large as any it has seen: those of an ensemble leave holes in it that
    nothing fits, so what is larger than a megabyte goes back at once. A hundred visitors take 60 MB, instead of 200.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((M_ARENA_MAX, 2), (M_MMAP_THRESHOLD, MEGABYTE), (M_TRIM_THRESHOLD, MEGABYTE)):
            mallopt(option, value)


@contextlib.asynccontextmanager
async def warm_up(app: Any) -> AsyncIterator[None]:
    """Before the server answers: import everything, take one measurement, draw it, so that no visitor waits for it."""
    give_memory_back()
    # A page beside heavy work waits this long whenever it has let go of the interpreter, which it does hundreds of times:
    # with the 5 ms that Python has, 100 visitors waited twice as long at the 95th percentile.
    sys.setswitchinterval(0.0005)
    # More threads only get in each other's way at these sizes, and badly when many sessions share two cores.
    torch.set_num_threads(1)
    result = run_experiment(PRESETS["reference"].spec)
    trail = backward_trail(result)
    over = run_ensemble(result.spec, range(10)).band(Quantity.WEIGHTS)
    theory = [map_of(activation, [0.5, 1.0, 1.5], [5, 10]) for activation in Activation]
    for dark in (False, True):
        river({"one": trail}, dark=dark)
        river({"one": trail, "other": trail}, dark=dark)
        readings(trail, title="warm-up", dark=dark)
        unmeasured(["one", "other"], dark=dark)
        with_prediction(river({"one": trail}, dark=dark), layers=list(trail["layer"]), direction=0, dark=dark)
        movement({kind: weight_movement(result.spec, 1, kind) for kind in Optimizer}, dark=dark)
        for kind in Cells:
            cells([[1.0]], unit=unit_of([[1.0]]), kind=kind, name="one", what="warm-up", dark=dark)
        both_kinds(both_kinds_of(result), dark=dark)
        outcomes([OutcomeCell("one", "two", "three", "right", "")], at_hand="one", dark=dark)
        no_numbers_yet(dark=dark)
        two_numbers(Reading(label="one", value=1.0), Reading(label="other", value=None), dark=dark)
        against_claim(MYTHS["he"].claim, reading="warm-up", dark=dark)
        verdict_grid({"one": ["none"], "other": ["steady"]}, powers=[0], current=0, dark=dark)
        for shown in ({"one": Band(own=trail, over_seeds=None)}, {name: Band(own=trail, over_seeds=over) for name in "12"}):
            bands(shown, y_title="warm-up", seed=0, dark=dark)
        factors([FactorRow(name="one", measured=(0.1, 0.2, 0.3), predicted=0.2)], dark=dark)
        factor_map(theory[0], picked=(1.0, 5), name="warm-up", dark=dark)
    to_csv(result)
    # What is there now stays: no collection has to look through it again, which takes 200 ms with the interpreter held.
    gc.collect()
    gc.freeze()
    yield
