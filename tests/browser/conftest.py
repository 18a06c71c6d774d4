"""A real server and a real browser. Everything here is skipped where there is no Chromium."""

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
]
PATIENCE = 60
"""Seconds to wait for anything: for a machine that does a lot besides."""
LOOKING_FOR_THE_BASE_PATH = re.compile(r"/\w+/_stcore/(health|host-config)$")
"""Of a link to a page, Streamlit's own script first asks for these in vain."""
IDLE = """() => {
    const app = document.querySelector('[data-testid=stApp]');
    const charts = [...document.querySelectorAll('[data-testid=stVegaLiteChart]')];
    return app?.dataset.testScriptState === 'notRunning' && app.dataset.testConnectionState === 'CONNECTED'
        && !document.querySelector('[data-stale=true], [data-testid=stSkeleton], [data-testid=stSpinner]')
        && document.querySelector('h1') && charts.every(chart => chart.querySelector('svg [class*=mark-]'));
}"""

QUIET = """() => new Promise(resolve => {
    const wait = () => setTimeout(() => { observer.disconnect(); resolve(); }, 200);
    const observer = new MutationObserver(() => { clearTimeout(timer); timer = wait(); });
    let timer = wait();
    observer.observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
})"""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="there is no Chromium here: apt-get install chromium"))


class Server:
    """`streamlit run streamlit_app.py` in a fresh interpreter, ready as soon as it says that it is healthy."""

    def __init__(self, log, *python_options, options=()):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        run = ["streamlit", "run", "streamlit_app.py", f"--server.port={self.port}", *options]
        command = [sys.executable, *python_options, "-m", *run]
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        self.answers_before_healthy = []
        deadline = time.monotonic() + PATIENCE
        while (answer := self._health()) != 200:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                pytest.fail(f"the server did not start:\n{log.read_text()}")
            self.answers_before_healthy += [answer] if answer else []
            time.sleep(0.05)

    def _health(self):
        try:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5) as response:
                return response.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return None

    def stop(self):
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Visitor:
    """One tab of one visitor. It notes how often the page's script ran, and whatever should not happen."""

    def __init__(self, context, url):
        self.url = url
        self.page = context.new_page()
        self.runs, self.requests, self.faults = 0, [], []
        self.page.on("websocket", lambda socket: socket.on("framereceived", self._count))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))

    def _count(self, frame):
        message = ForwardMsg()
        message.ParseFromString(frame)
        self.runs += message.HasField("script_finished")

    def _note(self, message):
        if message.type == "error" and not LOOKING_FOR_THE_BASE_PATH.search(message.location["url"]):
            self.faults.append(f"{message.text} {message.location['url']}")

    def open(self, path="/"):
        with self.a_run():
            self.page.goto(self.url + path)
        return self

    @contextlib.contextmanager
    def a_run(self):
        """What is done in here makes the page run; afterwards that run is over and shown."""
        before = self.runs
        yield
        deadline = time.monotonic() + PATIENCE
        while self.runs == before:
            assert time.monotonic() < deadline, "the page did not run"
            self.page.wait_for_timeout(20)
        self.settle()

    def settle(self):
        """Wait until nothing runs, everything is shown, and nothing has changed on the page for a moment."""
        while True:
            runs = self.runs
            self.page.wait_for_function(IDLE, timeout=PATIENCE * 1000)
            self.page.evaluate(QUIET)
            if runs == self.runs and self.page.evaluate(IDLE):
                return

    def menu(self, title):
        """Choose a page in the menu."""
        link = self.page.get_by_role("navigation").get_by_role("link", name=title, exact=True)
        with self.a_run():
            link.click()

    def fill(self, label, value):
        box = self.page.get_by_label(label, exact=True).and_(self.page.locator("input"))
        with self.a_run():
            box.fill(str(value))
            box.press("Enter")

    def choose(self, label, option):
        with self.a_run():
            self.page.get_by_role("combobox", name=label).click()
            self.page.get_by_role("option", name=option, exact=True).click()

    def press(self, button):
        """Press the first button of that name."""
        with self.a_run():
            self.page.get_by_role("button", name=button, exact=True).first.click()

    def pick(self, group, option):
        """Choose one of several options that are all on the page, in the first group of that name."""
        radios = self.page.get_by_role("radiogroup", name=group, exact=True).first.get_by_role("radio", name=option, exact=True)
        radios.locator("xpath=ancestor-or-self::*[self::label or self::button][1]").click()

    def answer(self, option, sure="Certain"):
        """Answer the question that is open on the page, and commit."""
        self.pick("Your answer", option)
        self.pick("How sure are you?", sure)
        self.press("Commit")

    def answer_first(self):
        """Give the first answer there is to the first question that is open, and commit."""
        self.page.get_by_role("radiogroup", name="Your answer").first.locator("label").first.click()
        self.pick("How sure are you?", "Certain")
        self.press("Commit")

    def save(self, button, folder):
        """Press a button that saves a file; the file."""
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name=button, exact=True).click()
        path = folder / download.value.suggested_filename
        download.value.save_as(path)
        return path

    def value(self, label):
        return self.page.get_by_label(label, exact=True).and_(self.page.locator("input")).input_value()

    @property
    def query(self):
        """The parameters in the address bar."""
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.page.url).query))

    @property
    def path(self):
        return urllib.parse.urlsplit(self.page.url).path

    @property
    def chart(self):
        """The page's picture: its first chart."""
        return self.page.locator("[data-testid=stVegaLiteChart]").first

    @property
    def alt(self):
        """The text that stands for the chart."""
        return self.chart.get_attribute("aria-label")

    @property
    def title(self):
        return self.page.locator("h1").inner_text()

    @property
    def menu_entries(self):
        return self.page.get_by_role("navigation").get_by_role("link").all_inner_texts()

    @property
    def fingerprint(self):
        """The three words of the experiment on the page."""
        return re.search(r"Fingerprint of these numbers: ([a-z]+-[a-z]+-[a-z]+)", self.text).group(1)

    @property
    def text(self):
        return self.page.locator("[data-testid=stMain]").inner_text()

    @property
    def warnings(self):
        return self.page.locator("[data-testid=stAlert]").all_inner_texts()

    def check(self):
        """Nothing was asked of another host, nothing went wrong in the page, and no exception is shown."""
        foreign = [url for url in self.requests if not url.startswith((self.url, "data:", "blob:"))]
        assert (foreign, self.faults) == ([], [])
        assert self.page.locator("[data-testid=stException], [role=dialog]").count() == 0


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server") / "log.txt")
    yield server
    server.stop()


@pytest.fixture
def fresh_servers(tmp_path):
    """Servers that nobody has visited, as many as asked for, started side by side."""
    started = []

    def start(count):
        with ThreadPoolExecutor(count) as pool:
            logs = [tmp_path / f"log_{number}.txt" for number in range(count)]
            started.extend(pool.map(lambda log: Server(log, "-X", "importtime"), logs))
        return started

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def server_run_with(tmp_path):
    """A server of its own, started with the options that are given."""
    started = []

    def start(*options):
        started.append(Server(tmp_path / "log.txt", options=options))
        return started[0]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="module")
def browser():
    # Not for the whole session: while Playwright is open, no other test could run an event loop.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def profiles(browser):
    """The browser's profiles by their options, kept for the next test so that files come from the browser's cache."""
    return {}


@pytest.fixture
def visit(browser, profiles, request):
    """Opens a page as a new visitor; after the test every visitor must have met nothing wrong."""
    visitors = []

    def open_page(path="/", server=None, **options):
        server = server or request.getfixturevalue("server")
        profile = str(options)
        if profile not in profiles:
            profiles[profile] = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        visitors.append(Visitor(profiles[profile], server.url))
        return visitors[-1].open(path)

    yield open_page
    for visitor in visitors:
        visitor.check()
        visitor.page.close()
