"""A learner's browser tab without the browser: one websocket that speaks Streamlit's protocol and keeps what is on the page.

The tab sends `BackMsg`s (the first run names the page, later ones carry the state of every widget) and receives
`ForwardMsg`s: elements with their place on the page, until `script_finished`. Checked with Streamlit 1.67.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from typing import Any, NamedTuple

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.Slider_pb2 import Slider
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

AGAIN = ForwardMsg.FINISHED_EARLY_FOR_RERUN
FAILED = ForwardMsg.FINISHED_WITH_COMPILE_ERROR
TEXTS = ("3-3-3-3-3-1", "16x9", "4-8-8-2", "7", "", "what arrives here")
"""What a learner types: sizes of layers, a number, nothing, an answer in words."""


class Widget(NamedTuple):
    """An input on the page: the kind of element, its message, and the part of the page that runs when it changes."""

    kind: str
    message: Any
    fragment: str


class Run(NamedTuple):
    """One run of a page as the visitor met it."""

    what: str
    page: str
    seconds: float
    shown: str
    """A digest of every element that is not an input."""
    kinds: str
    """The kinds of those elements, in order."""
    exceptions: tuple[str, ...]


class Tab:
    """One open tab; everything random about it comes from `choices`."""

    def __init__(self, url: str, choices: random.Random, patience: float = 120.0) -> None:
        self.pages: dict[str, str] = {}
        self._address = url.replace("http", "ws", 1) + "/_stcore/stream"
        self._choices = choices
        self._patience = patience
        self._socket: ClientConnection | None = None
        self._elements: dict[tuple[int, ...], tuple[Any, str, int]] = {}
        self._states: dict[str, WidgetState] = {}
        self._query = self._page = ""
        self._hash = self._fragment = ""
        self._run = 0

    async def open(self, page: str = "", query: str = "") -> Run:
        """Open the tab on a page, as a link does."""
        self._socket = await connect(
            self._address, subprotocols=["streamlit"], max_size=None, compression=None, open_timeout=self._patience
        )
        self._query, self._page = query, page
        return await self._rerun(f"open {page}")

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()

    async def go(self, page: str) -> Run:
        """Choose a page in the menu, which forgets the query."""
        self._page, self._hash, self._query = page, self.pages[page], ""
        self._states.clear()
        self._elements.clear()
        return await self._rerun(f"go to {page}")

    async def act(self) -> Run:
        """Change one of the inputs on the page, or go to another page where there is none."""
        widgets = [w for w in self._widgets() if not w.message.disabled and not getattr(w.message, "ignore_rerun", False)]
        if not widgets:
            return await self.go(self._choices.choice(sorted(self.pages)))
        widget = self._choices.choice(widgets)
        state = changed(widget, self._states.get(widget.message.id), self._choices)
        self._states[state.id] = state
        if widget.message.form_id and widget.kind != "button":
            # Inside a form nothing runs before its button is pressed.
            buttons = (w for w in widgets if w.kind == "button" and w.message.form_id == widget.message.form_id)
            if button := next(buttons, None):
                self._states[button.message.id] = WidgetState(id=button.message.id, trigger_value=True)
        run = await self._rerun(f"{widget.kind} {widget.message.label}", widget.fragment)
        for key in [key for key, state in self._states.items() if state.trigger_value]:
            del self._states[key]
        return run

    def _widgets(self) -> list[Widget]:
        found = (Widget(kind_of(element), content_of(element), fragment) for element, fragment, _ in self._ordered())
        return [widget for widget in found if widget.kind in INPUTS and widget.message.id]

    def _ordered(self) -> list[tuple[Any, str, int]]:
        return [self._elements[place] for place in sorted(self._elements)]

    async def _rerun(self, what: str, fragment: str = "") -> Run:
        assert self._socket is not None
        ask = BackMsg()
        ask.rerun_script.query_string = self._query
        ask.rerun_script.page_script_hash = self._hash
        ask.rerun_script.page_name = "" if self._hash else self._page
        ask.rerun_script.fragment_id = self._fragment = fragment
        ask.rerun_script.context_info.timezone = "UTC"
        on_page = {widget.message.id for widget in self._widgets()}
        ask.rerun_script.widget_states.widgets.extend(state for key, state in self._states.items() if key in on_page)
        start = time.perf_counter()
        await self._socket.send(ask.SerializeToString())
        async with asyncio.timeout(self._patience):
            while not await self._take(await self._socket.recv()):
                pass
        seconds = time.perf_counter() - start
        exceptions = [content_of(e) for e, _, _ in self._ordered() if kind_of(e) == "exception"]
        told = tuple(f"{exception.type}: {exception.message}" for exception in exceptions)
        return Run(what, self._page, seconds, *self._shown(), told)

    async def _take(self, frame: Any) -> bool:
        """Take in one message; whether it ends the run."""
        message = ForwardMsg()
        message.ParseFromString(frame)
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self._run += 1
            self._hash = message.new_session.page_script_hash
        elif kind == "navigation":
            self._hash = message.navigation.page_script_hash
            shown = [page for page in message.navigation.app_pages if not page.is_hidden]
            self.pages = {page.url_pathname: page.page_script_hash for page in shown}
            self._page = next((name for name, key in self.pages.items() if key == self._hash), self._page)
        elif kind == "page_info_changed":
            self._query = message.page_info_changed.query_string
        elif kind == "delta":
            self._place(tuple(message.metadata.delta_path), message.delta)
        elif kind == "session_event" and message.session_event.HasField("script_compilation_exception"):
            raise RuntimeError(message.session_event.script_compilation_exception.message)
        elif kind == "script_finished" and message.script_finished != AGAIN:
            if message.script_finished == FAILED:
                raise RuntimeError(f"the script of page {self._page!r} could not be compiled")
            # What was not drawn again is gone; after the run of a fragment, only what belongs to the fragment.
            part = self._fragment if message.script_finished == ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY else ""
            kept = {p: e for p, e in self._elements.items() if e[2] == self._run or (part and e[1] != part)}
            self._elements = kept
            return True
        return False

    def _place(self, place: tuple[int, ...], delta: Any) -> None:
        if delta.WhichOneof("type") != "new_element":
            self._elements.pop(place, None)  # a block stands where an element stood
            return
        element = delta.new_element
        # An element stands where a block stood with all that was in it.
        self._elements = {p: e for p, e in self._elements.items() if p[: len(place)] != place}
        self._elements[place] = element, delta.fragment_id, self._run
        kind = kind_of(element)
        if kind in INPUTS:
            message = content_of(element)
            taken_up = message.id in self._states and not getattr(message, "set_value", False)
            if not taken_up and (state := initial(kind, message)):
                self._states[message.id] = state

    def _shown(self) -> tuple[str, str]:
        shown = [
            e for e, _, _ in self._ordered() if kind_of(e) not in {*INPUTS, "download_button", "empty", "skeleton", "spinner"}
        ]
        digest = hashlib.sha256(b"".join(element.SerializeToString(deterministic=True) for element in shown)).hexdigest()
        return digest, " ".join(map(kind_of, shown))


def kind_of(element: Any) -> str:
    return element.WhichOneof("type") or ""


def content_of(element: Any) -> Any:
    return getattr(element, kind_of(element))


# --- what each kind of input holds, at first and when somebody changes it ---------------------------------------------


def initial(kind: str, message: Any) -> WidgetState | None:
    """The state in which a browser takes up an input: the one the server sets, else its default."""
    state = WidgetState(id=message.id)
    given = getattr(message, "set_value", False)
    if kind == "slider":
        if message.type == Slider.SELECT_SLIDER:
            state.string_array_value.data[:] = (
                message.raw_value if given else [message.options[int(i)] for i in message.default]
            )
        else:
            state.double_array_value.data[:] = message.value if given else message.default
    elif kind in ("radio", "selectbox"):
        if given and message.HasField("raw_value"):
            state.string_value = message.raw_value
        elif not given and message.HasField("default") and message.options:
            state.string_value = message.options[message.default]
        else:
            return None
    elif kind == "button_group":
        options = [option.content for option in message.options]
        state.string_array_value.data[:] = message.raw_values if given else [options[i] for i in message.default]
    elif kind == "multiselect":
        state.string_array_value.data[:] = message.raw_values if given else [message.options[i] for i in message.default]
    elif kind == "checkbox":
        state.bool_value = message.value if given else message.default
    elif kind in ("number_input", "text_input", "text_area"):
        field = "value" if given else "default"
        if not message.HasField(field):
            return None
        setattr(state, "double_value" if kind == "number_input" else "string_value", getattr(message, field))
    else:
        return None
    return state


def changed(widget: Widget, now: WidgetState | None, choices: random.Random) -> WidgetState:
    """The input's state after somebody has used it."""
    kind, message = widget.kind, widget.message
    state = WidgetState(id=message.id)
    if kind == "button":
        state.trigger_value = True
    elif kind == "slider" and message.type == Slider.SELECT_SLIDER:
        count = len(now.string_array_value.data) if now else 1
        places = sorted(choices.choices(range(len(message.options)), k=count))
        state.string_array_value.data[:] = [message.options[place] for place in places]
    elif kind == "slider":
        count = len(now.double_array_value.data) if now else 1
        steps = max(1, int((message.max - message.min) / (message.step or 1)))
        drawn = sorted(message.min + (message.step or 1) * choices.randint(0, steps) for _ in range(count))
        state.double_array_value.data[:] = drawn
    elif kind in ("radio", "selectbox"):
        state.string_value = choices.choice(list(message.options) or [""])
    elif kind == "button_group":
        options = [option.content for option in message.options]
        state.string_array_value.data[:] = [choices.choice(options)] if options else []
    elif kind == "multiselect":
        most = min(message.max_selections or 3, len(message.options), 3)
        state.string_array_value.data[:] = choices.sample(list(message.options), choices.randint(0, most))
    elif kind == "checkbox":
        state.bool_value = not (now is not None and now.bool_value)
    elif kind == "number_input":
        low = message.min if message.has_min else -10.0
        high = message.max if message.has_max else low + 20
        # Few values, as in a class that follows one course; each has to be measured once.
        state.double_value = min(low + (message.step or 1) * choices.randint(0, 20), high)
    else:
        text = choices.choice(TEXTS)
        state.string_value = text[: message.max_chars] if message.max_chars else text
    return state


INPUTS = frozenset(
    {
        *("slider", "radio", "selectbox", "button_group", "multiselect", "checkbox"),
        *("number_input", "text_input", "text_area", "button"),
    }
)
CLOSED = (ConnectionClosed, TimeoutError, OSError)
"""What a tab raises when the server is gone or does not answer."""
