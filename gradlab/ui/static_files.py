"""Streamlit's own files, sent compressed from memory.

A first visit loads some hundred of them. Streamlit sends them as they are, 6 MB, each by way of the disk, a worker thread
and its whole stack of middleware, so that a class that opens its browsers all at once waits. Here a file is read and
compressed when it is first asked for, and from then on sent from memory.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from pathlib import Path
from typing import NamedTuple

import streamlit
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

FOLDER = Path(streamlit.__file__).parent / "static"
COMPRESSED = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
AS_THEY_ARE = {".gif": "image/gif", ".png": "image/png", ".woff2": "font/woff2"}
"""Types of files that are compressed already. Files of types not listed here are left to Streamlit."""
TYPES = COMPRESSED | AS_THEY_ARE
# A name under static/ contains a hash of the content, so it stands for this content for ever; Streamlit says so too.
CACHE_CONTROL = b"public, immutable, max-age=31536000"


class Packed(NamedTuple):
    """A file ready to be sent."""

    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    etag: str


class StaticFiles:
    """Answers requests for whole files under `static/`; everything else goes on to Streamlit."""

    def __init__(self, app: ASGIApp, folder: Path = FOLDER, level: int = 9) -> None:
        self._app = app
        self._level = level
        base = str(streamlit.config.get_option("server.baseUrlPath") or "").strip("/")
        root = f"/{base}/" if base else "/"
        # Only what is listed here is ever read, whatever a request says.
        found = (path for path in (folder / "static").rglob("*") if path.suffix in TYPES and path.is_file())
        self._files = {root + path.relative_to(folder).as_posix(): path for path in found}
        self._packed: dict[tuple[Path, bool], asyncio.Task[Packed]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = self._files.get(scope["path"]) if scope["type"] == "http" and scope["method"] in ("GET", "HEAD") else None
        headers = Headers(scope=scope) if path else Headers()
        if path is None or "range" in headers:
            await self._app(scope, receive, send)
            return
        packed = await self._ready(path, path.suffix in COMPRESSED and accepts_gzip(headers.get("accept-encoding", "")))
        if packed.etag in re.split(r",\s*", headers.get("if-none-match", "").replace("W/", "")):
            kept = [(name, value) for name, value in packed.headers if name in (b"cache-control", b"etag", b"vary")]
            await send({"type": "http.response.start", "status": 304, "headers": kept})
            await send({"type": "http.response.body", "body": b""})
            return
        await send({"type": "http.response.start", "status": 200, "headers": list(packed.headers)})
        await send({"type": "http.response.body", "body": packed.body if scope["method"] == "GET" else b""})

    async def _ready(self, path: Path, compressed: bool) -> Packed:
        """The file, read and compressed once however many ask for it, in a worker thread so that nobody else waits."""
        key = path, compressed
        if key not in self._packed or (self._packed[key].done() and self._packed[key].exception()):
            self._packed[key] = asyncio.create_task(asyncio.to_thread(pack, path, self._level if compressed else None))
        return await asyncio.shield(self._packed[key])  # a visitor who leaves does not take the file along


def pack(path: Path, level: int | None) -> Packed:
    """The file's content with the headers it is sent with, compressed at a gzip level if one is given."""
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}{"" if level is None else "-gzip"}"'
    body = content if level is None else gzip.compress(content, level, mtime=0)
    headers = (
        (b"content-type", TYPES[path.suffix].encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", CACHE_CONTROL),
        (b"etag", etag.encode()),
        (b"vary", b"Accept-Encoding"),
    )
    return Packed(headers if level is None else (*headers, (b"content-encoding", b"gzip")), body, etag)


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a request's Accept-Encoding allows gzip: it is named, and not with a quality of zero."""
    for offer in accept_encoding.lower().split(","):
        coding, _, quality = offer.partition(";")
        if coding.strip() in ("gzip", "x-gzip"):
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", quality)
    return False
