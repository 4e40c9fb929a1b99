"""OpenTelemetry trace context in the headers of tasks, where `opentelemetry-api` is installed.

A put sends the current context in the way the program's propagators write it (W3C `traceparent`,
`tracestate` and `baggage` unless configured otherwise); what the server would refuse is left out:
tracing must not make a put fail.
"""

from __future__ import annotations

from typing import Any

try:
    from opentelemetry import propagate
except ImportError:  # not installed: nothing is sent
    propagate = None  # type: ignore[assignment]

#: The server's bounds (docs/calls.md).
_HEADERS_MAX, _BYTES_MAX, _NAME_MAX, _STATE_MAX = 16, 4096, 64, 512
_FIRST = ("traceparent", "tracestate")


def traced(options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Options of a put with the current trace context, unless they name headers themselves."""
    options = options or {}
    if propagate is None or "headers" in options:
        return options
    found: dict[str, str] = {}
    propagate.inject(found)
    headers = fitting(found) if found else found
    return {**options, "headers": headers} if headers else options


def fitting(found: dict[str, str]) -> dict[str, str]:
    """What the server accepts of it, trace context first."""
    named = {name.lower(): text for name, text in found.items()}
    ordered = sorted(named.items(), key=lambda one: one[0] not in _FIRST)
    kept: dict[str, str] = {}
    size = 0
    for name, text in ordered:
        too_long = name == "tracestate" and len(text) > _STATE_MAX
        room = len(kept) < _HEADERS_MAX and size + len(name) + len(text) <= _BYTES_MAX
        plain = text.isascii() and text.isprintable() and len(name) <= _NAME_MAX
        if room and plain and not too_long:
            kept[name] = text
            size += len(name) + len(text)
    return kept


def context_of(headers: dict[str, str]) -> Any:
    """The `opentelemetry.context.Context` that headers tell of; None if they tell of none."""
    return propagate.extract(headers) if propagate is not None and headers else None
