"""Makes the twin of this folder importable, whatever import mode is set."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
