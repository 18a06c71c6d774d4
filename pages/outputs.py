"""outputs."""

import sys
from pathlib import Path

if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

from gradlab.ui import frame

frame.begin("outputs")
frame.end("outputs")
