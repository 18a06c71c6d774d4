"""A link as a QR code, drawn here: no other host learns what is looked at."""

from __future__ import annotations

import io

import segno

QUIET_ZONE = 4
"""Light squares around the code, as many as the standard (ISO/IEC 18004) asks for."""


def qr_svg(url: str) -> str | None:
    """The QR code of a URL as an SVG image, for `st.image`; None for a URL longer than a QR code can hold.

    The limit is 2,953 bytes. The code is black on white in every theme, as readers expect it, has the least error
    correction if the URL is long, so that the squares stay large, and scales with the width it is given.
    """
    try:
        code = segno.make_qr(url, error="l")  # raised by segno where that costs no larger code
    except segno.DataOverflowError:
        return None
    svg = io.BytesIO()
    code.save(svg, kind="svg", border=QUIET_ZONE, light="#fff", xmldecl=False, omitsize=True, nl=False)
    return svg.getvalue().decode()
