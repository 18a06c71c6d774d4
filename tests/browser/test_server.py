"""The server: ready only when warm, any page can be its first, and every response carries what it should."""

import gzip
import re
import shlex
import socket
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gradlab.ui.pages import TITLES

LINK = "activation=tanh&seed=7&layer_sizes=4-8x7-2"
WITHOUT_CONTROLS = ("start", "methods", "myths")
LIBRARIES = ("torch", "pandas", "altair")


def imported(server):
    """The modules that the server's interpreter has imported so far."""
    return set(re.findall(r"^import time:[^|]+\|[^|]+\| +(\S+)$", server.log.read_text(errors="replace"), re.MULTILINE))


@pytest.mark.parametrize("pages", [list(TITLES)[place : place + 3] for place in range(0, len(TITLES), 3)], ids=" ".join)
def test_a_link_can_be_the_very_first_request_of_a_fresh_server(fresh_servers, visit, pages):
    for page, server in zip(pages, fresh_servers(len(pages)), strict=True):
        before = imported(server)
        assert before.issuperset(LIBRARIES)  # what takes long to import is there before the server says that it is healthy
        assert server.answers_before_healthy == []  # until then there was no answer at all, so nobody was sent away

        visitor = visit(f"/{page}?{LINK}", server)
        assert visitor.path == f"/{page}"
        assert visitor.query == dict(urllib.parse.parse_qsl(LINK))
        assert visitor.menu_entries == list(TITLES.values())
        assert visitor.title.endswith("?")
        assert visitor.warnings == []
        icon = visitor.page.locator("link[rel*=icon]").first.get_attribute("href")
        assert icon.startswith(("data:", visitor.url)) or "//" not in icon
        if page not in WITHOUT_CONTROLS:
            assert (visitor.value("Seed"), visitor.value("Layer sizes")) == ("7", "4-8x7-2")
            assert visitor.page.get_by_role("combobox", name="Activation").input_value() == "Tanh"
        visitor.check()

        late = {name for name in imported(server) - before if name.split(".")[0] in LIBRARIES}
        assert late == set()


def get(url, encoding="identity"):
    request = urllib.request.Request(url, headers={"Accept-Encoding": encoding})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.headers, response.read()


@pytest.fixture(scope="module")
def script(server):
    """The address of the script that a page loads first."""
    _, page = get(server.url)
    return f"{server.url}/" + re.search(r'static/js/index[^"]+[.]js', page.decode()).group()


def test_pages_and_files_carry_the_security_headers(server, script):
    for url in (server.url, f"{server.url}/trail", script, f"{server.url}/_stcore/health"):
        headers, _ = get(url)
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == policy["base-uri"] == "'self'"
        assert (policy["frame-ancestors"], policy["object-src"]) == ("'self'", "'none'")
        assert "unsafe" not in policy["script-src"]
        assert not [source for sources in policy.values() for source in sources.split() if "//" in source or "*" in source]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"
        assert "camera=()" in headers["Permissions-Policy"]


def test_a_page_of_the_same_host_can_hold_the_app_in_a_frame(server, visit):
    """Streamlit Cloud shows every app that way."""
    page = visit("/start", server).page
    page.goto(f"{server.url}/_stcore/health")
    page.evaluate("address => { document.body.appendChild(document.createElement('iframe')).src = address }", f"/trail?{LINK}")
    page.frame_locator("iframe").get_by_role("heading", level=1).wait_for()
    page.frame_locator("iframe").get_by_label("Layer sizes").first.wait_for()


def test_large_files_are_compressed(script):
    _, plain = get(script)
    headers, packed = get(script, "gzip")
    assert len(plain) > 100_000
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain) / 2


def connection_under(host, server):
    """A browser's connection to the server under a host's name, as a proxy passes it on."""
    address = socket.create_connection(("127.0.0.1", server.port))
    path = f"{host}:{server.port}/_stcore/stream"
    return connect(f"ws://{path}", sock=address, origin=f"http://{host}:{server.port}", subprotocols=["streamlit"])


def test_behind_a_proxy_the_readme_s_command_takes_connections_under_the_named_host_only(server_run_with):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    _, _, after = readme.partition("<!-- the command behind a proxy -->")
    command = re.search(r"^\.venv/bin/streamlit run streamlit_app\.py (.+)$", after, re.MULTILINE).group(1)
    server = server_run_with(*shlex.split(command))
    with connection_under("lab.example.org", server):
        pass
    with pytest.raises(InvalidStatus, match="403"), connection_under("elsewhere.example.org", server):
        pass
