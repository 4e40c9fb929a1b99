"""`python -m demo`: the crawl frontier from a terminal.

Here: nothing but the call. Must not be here: options or logic (see command.py).
"""

from __future__ import annotations

import sys

from demo import main

sys.exit(main(sys.argv[1:]))
