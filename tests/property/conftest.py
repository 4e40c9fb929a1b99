"""Makes the naive model and the engine's bench importable, whatever import mode is set."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "engine")]
