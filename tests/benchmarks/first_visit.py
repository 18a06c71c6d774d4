"""What an empty browser fetches: the page's HTML and its files, over six connections, as Chromium does."""

from __future__ import annotations

import asyncio
import re
import shutil
from dataclasses import dataclass
from urllib.parse import urlsplit

LANES = 6
"""Connections a browser opens to one host."""


@dataclass
class Files:
    """The files of a visit, fetched with one Accept-Encoding; `received` counts the bytes of all visits together."""

    paths: list[str]
    encoding: str
    received: int = 0

    async def fetch(self, url: str) -> None:
        """Fetch the page, then everything else."""
        await self._lane(url, ["/"])
        await asyncio.gather(*(self._lane(url, self.paths[lane::LANES]) for lane in range(LANES)))

    async def _lane(self, url: str, paths: list[str]) -> None:
        """Fetch some files over one connection, one after the other."""
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=2**20)
        try:
            for path in paths:
                ask = f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAccept-Encoding: {self.encoding}\r\n\r\n"
                writer.write(ask.encode())
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                if " 200 " not in head.split("\r\n", 1)[0] + " ":
                    raise RuntimeError(f"{path}: {head.splitlines()[0]}")
                size = await body_length(reader, head)
                self.received += len(head) + size
        finally:
            writer.close()


async def body_length(reader: asyncio.StreamReader, head: str) -> int:
    """Read a response's body; its bytes as sent."""
    if length := re.search(r"content-length: (\d+)", head):
        await reader.readexactly(int(length[1]))
        return int(length[1])
    total = 0
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
        total += size
    await reader.readline()
    return total


async def files_of_a_visit(url: str) -> list[str]:
    """The paths that a browser asks for when it opens the app with an empty cache.

    Chromium is asked where there is one. Else they are the files that the HTML names: fewer, as scripts load scripts.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no Chromium here: only the files that index.html names")
        return await _named_in_the_page(url)
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = await browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(url)
        await page.wait_for_selector("[data-test-script-state=notRunning] h1", timeout=60_000)
        known = -1
        while known < len(asked):  # elements ask for their scripts, and those for others, when they are drawn
            known = len(asked)
            await page.wait_for_timeout(2000)
        await browser.close()
    paths = [urlsplit(address).path for address in asked if address.startswith(f"{url}/")]
    return [path for path in dict.fromkeys(paths) if path != "/"]


async def _named_in_the_page(url: str) -> list[str]:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(f"GET / HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode())
    page = (await reader.read()).decode()
    writer.close()
    return [f"/{path}" for path in re.findall(r'(?:src|href)="\./((?:static/|favicon)[^"]+)"', page)]
