"""Streamlit's own files, sent from memory: the same content and headers as Streamlit sends, compressed, and nothing else."""

import asyncio
import gzip

import pytest
from starlette.staticfiles import StaticFiles as FromDisk

from gradlab.ui.static_files import FOLDER, TYPES, StaticFiles, accepts_gzip

FILES = sorted(path for path in (FOLDER / "static").rglob("*") if path.is_file())
SCRIPT = next(path for path in FILES if path.match("index.*.js"))
SMALL = min((path for path in FILES if path.suffix == ".js"), key=lambda path: path.stat().st_size)
FONT = next(path for path in FILES if path.suffix == ".woff2")


async def further_on(scope, receive, send):
    """Stands for Streamlit, and says so."""
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"further on"})


def address(path, root="/"):
    return root + path.relative_to(FOLDER).as_posix()


async def get(app, path, method="GET", **headers):
    """Status, headers and body of the answer to one request."""
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": given, "asgi": {"spec_version": "2.4"}}
    messages = []

    async def send(message):
        messages.append(message)

    await app(scope, None, send)
    start, *rest = messages
    told = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    assert len(told) == len(start["headers"])
    start["headers"].append((b"x-further-out", b"1"))  # as other middleware may, which must not stick
    return start["status"], told, b"".join(message.get("body", b"") for message in rest)


def answer(path, app=None, **options):
    return asyncio.run(get(app or StaticFiles(further_on), path, **options))


def test_every_file_arrives_as_it_is_on_disk_with_or_without_compression():
    app = StaticFiles(further_on, level=1)

    async def check():
        for path in FILES:
            content = path.read_bytes()
            for coding in ("gzip, deflate, br", "identity"):
                status, headers, body = await get(app, address(path), accept_encoding=coding)
                assert status == 200, path
                assert int(headers["content-length"]) == len(body)
                assert headers["vary"] == "Accept-Encoding"
                packed = headers.get("content-encoding") == "gzip"
                assert packed == (coding != "identity" and path.suffix in (".js", ".css", ".svg", ".json"))
                assert (gzip.decompress(body) if packed else body) == content

    asyncio.run(check())
    assert {path.suffix for path in FILES} <= set(TYPES)


@pytest.mark.parametrize("path", [SCRIPT, SMALL, FONT], ids=lambda path: path.suffix)
def test_type_and_length_are_those_that_starlette_gives(path):
    _, headers, _ = answer(address(path))
    _, expected, _ = answer(address(path), FromDisk(directory=FOLDER))
    assert {name: headers[name] for name in ("content-type", "content-length")} == {
        name: expected[name] for name in ("content-type", "content-length")
    }


def test_a_browser_may_keep_a_file_whose_name_holds_its_hash():
    _, headers, _ = answer(address(SCRIPT), accept_encoding="gzip")
    assert headers["cache-control"].startswith("public, immutable")


def test_who_has_a_file_already_gets_no_second_copy():
    _, plain, _ = answer(address(SCRIPT))
    _, packed, _ = answer(address(SCRIPT), accept_encoding="gzip")
    assert plain["etag"] != packed["etag"]
    for known in (packed["etag"], f'"other", {packed["etag"]}', f"W/{packed['etag']}"):
        status, headers, body = answer(address(SCRIPT), accept_encoding="gzip", if_none_match=known)
        assert (status, body) == (304, b"")
        assert headers["etag"] == packed["etag"]
        assert "content-length" not in headers
    for unknown in (plain["etag"], '"other"', packed["etag"].strip('"')):
        assert answer(address(SCRIPT), accept_encoding="gzip", if_none_match=unknown)[0] == 200


def test_head_tells_the_length_and_sends_nothing():
    status, headers, body = answer(address(SCRIPT), method="HEAD", accept_encoding="gzip")
    assert (status, body) == (200, b"")
    assert headers == answer(address(SCRIPT), accept_encoding="gzip")[1]


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/index.html", "/measure", "/_stcore/health", "/static", "/static/", "/static/js/none.js", "//static/js/x.js"),
        *("/static/../index.html", "/static/js/../../../__init__.py", "/static/%2e%2e/index.html"),
        str(SCRIPT),
    ],
)
def test_whatever_is_not_one_of_the_files_goes_on_to_streamlit(path):
    assert answer(path) == (299, {}, b"further on")


def test_parts_of_a_file_and_other_methods_go_on_to_streamlit():
    assert answer(address(SCRIPT), range="bytes=0-99")[0] == 299
    assert answer(address(SCRIPT), method="POST")[0] == 299


def test_websockets_go_on_to_streamlit():
    seen = []

    async def streamlit(scope, receive, send):
        seen.append(scope["type"])

    asyncio.run(StaticFiles(streamlit)({"type": "websocket", "path": address(SCRIPT)}, None, None))
    assert seen == ["websocket"]


def test_under_a_base_path_the_files_are_found_there(monkeypatch):
    monkeypatch.setattr("streamlit.config.get_option", {"server.baseUrlPath": "/lab/one/"}.__getitem__)
    app = StaticFiles(further_on)
    assert answer(address(SCRIPT, "/lab/one/"), app)[0] == 200
    assert answer(address(SCRIPT), app)[0] == 299


def test_a_file_is_read_once_however_many_ask_for_it_at_once(tmp_path):
    folder = tmp_path / "static"
    folder.mkdir()
    script = folder / "a.js"
    script.write_text("first content")
    app = StaticFiles(further_on, tmp_path)

    async def ask():
        together = await asyncio.gather(*(get(app, "/static/a.js", accept_encoding="gzip") for _ in range(20)))
        script.write_text("other content")
        return [*together, await get(app, "/static/a.js", accept_encoding="gzip")]

    assert {gzip.decompress(body) for _, _, body in asyncio.run(ask())} == {b"first content"}


def test_a_visitor_who_leaves_does_not_spoil_a_file_for_the_next(tmp_path):
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "a.js").write_text("content")
    app = StaticFiles(further_on, tmp_path)

    async def leave_and_return():
        leaving = asyncio.create_task(get(app, "/static/a.js"))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        return await get(app, "/static/a.js")

    assert asyncio.run(leave_and_return())[2] == b"content"


def test_a_file_that_could_not_be_read_is_tried_again(tmp_path):
    (tmp_path / "static").mkdir()
    script = tmp_path / "static" / "a.js"
    script.write_text("content")
    app = StaticFiles(further_on, tmp_path)
    script.unlink()

    async def ask():
        with pytest.raises(FileNotFoundError):
            await get(app, "/static/a.js")
        script.write_text("content")
        return await get(app, "/static/a.js")

    assert asyncio.run(ask())[2] == b"content"


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        *[
            ("gzip", True),
            ("gzip, deflate, br", True),
            ("br;q=1.0, GZIP;q=0.8", True),
            ("x-gzip", True),
            ("gzip;q=0.001", True),
        ],
        *[
            ("", False),
            ("identity", False),
            ("br", False),
            ("gzip;q=0", False),
            ("gzip; q=0.00, br", False),
            ("notgzip", False),
        ],
    ],
)
def test_compression_is_sent_to_those_who_accept_it(header, accepted):
    assert accepts_gzip(header) is accepted
