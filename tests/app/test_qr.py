"""The QR code of a link."""

import re

import pytest
import segno

from gradlab.ui.qr import QUIET_ZONE, qr_svg

LINK = "https://lab.example.org/measure?seed=7&layer_sizes=64x21&activation=tanh"
FINDER = ["1111111", "1000001", "1011101", "1011101", "1011101", "1000001", "1111111"]


def squares(svg):
    """The image as rows of 0 and 1, its border included, by following the pen along the one path of dark squares."""
    size = int(re.search(r'viewBox="0 0 (\d+) \1"', svg).group(1))
    assert f'fill="#fff" d="M0 0h{size}v{size}h-{size}z"' in svg  # the light ground
    rows = [["0"] * size for _ in range(size)]
    x = y = 0
    for command, numbers in re.findall(r"([Mmh])([-\d. ]+)", re.search(r'stroke="#000" d="([^"]+)"', svg).group(1)):
        first, *second = map(float, numbers.split())
        if command == "h":
            rows[y][x : x + int(first)] = "1" * int(first)
            x += int(first)
        elif command == "M":
            x, y = int(first), int(second[0] - 0.5)
        else:
            x, y = x + int(first), y + int(second[0])
    return ["".join(row) for row in rows]


def part(rows, top, left, height=7, width=7):
    return [row[left : left + width] for row in rows[top : top + height]]


@pytest.mark.parametrize("url", [LINK, "http://localhost:8501/", f"{LINK}&layer_sizes={'-'.join(map(str, range(100, 500)))}"])
def test_the_image_shows_a_qr_code_with_its_quiet_zone(url):
    rows = squares(qr_svg(url))
    size = len(rows) - 2 * QUIET_ZONE
    code = part(rows, QUIET_ZONE, QUIET_ZONE, size, size)
    assert (size - 17) % 4 == 0  # the standard's sizes
    assert sum(row.count("1") for row in rows) == sum(row.count("1") for row in code)
    assert part(code, 0, 0) == part(code, 0, size - 7) == part(code, size - 7, 0) == FINDER
    assert code[6][8:-8] == "".join(row[6] for row in code[8:-8]) == ("10" * size)[: size - 16]  # the timing patterns
    assert code == ["".join(map(str, map(int, row))) for row in segno.make_qr(url, error="l").matrix]


def test_a_link_of_two_thousand_characters_still_has_a_code_and_one_that_is_too_long_has_none():
    assert len(squares(qr_svg((LINK + "&" * 2000)[:2000]))) <= 177 + 2 * QUIET_ZONE
    assert qr_svg((LINK + "&" * 3000)[:2953]) is not None
    assert qr_svg((LINK + "&" * 3000)[:2954]) is None


def test_nothing_of_the_link_stands_in_the_image_as_text():
    assert re.fullmatch(r"<svg [^<>]*>(<path [^<>]*/>)+</svg>", qr_svg("https://x/?a=<script>alert(1)</script>\"'"))
