"""The client is a distribution of its own: its tests find it, and their helpers, in its folder."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3] / "client"), str(Path(__file__).parent)]
