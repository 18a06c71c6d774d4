"""A picture of the page as an image file, drawn by the renderer that Altair itself saves charts with."""

from __future__ import annotations

import threading
from typing import Any, Literal

import pyarrow

from gradlab.charts.base import paper
from gradlab.ui.cache import Picture, kept

WIDTH = 680
_ONE_AT_A_TIME = threading.Lock()
"""An image takes a fifth of a second of a core: a class that saves at once waits in line instead of slowing every page."""


def image(picture: Picture, kind: Literal["svg", "png"], dark: bool) -> bytes:
    """The picture as an SVG document or a PNG of twice the size on screen."""
    datasets = picture.vega_lite["datasets"]
    data = {name: pyarrow.ipc.open_stream(arrow).read_all().to_pylist() for name, arrow in datasets.items()}
    # Opaque, so that the words of the dark theme can be read wherever the image ends up.
    return _drawn({**picture.vega_lite, "datasets": data, "background": paper(dark), "width": WIDTH}, kind)


@kept(max_entries=50)
def _drawn(vega_lite: dict[str, Any], kind: Literal["svg", "png"]) -> bytes:
    import vl_convert  # loads a JavaScript engine of 100 MB: not before somebody saves an image

    with _ONE_AT_A_TIME:
        if kind == "svg":
            return str(vl_convert.vegalite_to_svg(vega_lite, allowed_base_urls=[])).encode()
        return bytes(vl_convert.vegalite_to_png(vega_lite, scale=2, allowed_base_urls=[]))
