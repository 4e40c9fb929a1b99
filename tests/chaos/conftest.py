"""Makes the chaos helpers importable beside the tests, and the cluster's harness with them."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for directory in (HERE, HERE.parent / "cluster"):
    sys.path.insert(0, str(directory))
