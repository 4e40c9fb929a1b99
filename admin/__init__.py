"""The admin API: HTTP on its own port for operators, load balancers and metrics scrapers.

Here: routes, checks of who asks, events, the API's document, a small client. Not here: what a flip
does; that is behind the one protocol in backend.py.
"""

from __future__ import annotations
