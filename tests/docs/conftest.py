"""Tests of the documents find their helpers in this folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
