"""Takes the pictures of the README from the running app: `python tests/browser/take_screenshots.py`."""

import tempfile
from pathlib import Path

from conftest import ARGUMENTS, CHROMIUM, IDLE, QUIET, Server
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent / "screenshots"
PICTURES = {
    "shortcuts": ("/shortcuts", "light", {"width": 1100, "height": 640}),
    "depth": ("/depth", "light", {"width": 1100, "height": 640}),
    "phone": ("/seeds", "dark", {"width": 390, "height": 760}),
}


def main():
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server(Path(folder) / "log.txt")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for name, (path, theme, size) in PICTURES.items():
            page = browser.new_context(viewport=size, color_scheme=theme).new_page()
            page.goto(server.url + path)
            page.wait_for_function(IDLE)
            page.evaluate(QUIET)
            page.screenshot(path=FOLDER / f"{name}.png")
            page.context.close()
        browser.close()
        server.stop()


if __name__ == "__main__":
    main()
