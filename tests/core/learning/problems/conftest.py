"""Shared by the tests of problems: the problem that lives in one file can be imported."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
