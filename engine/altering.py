"""Options of a tube that is there: which may change, how, and what differs from what is wanted.

Here: the rules. What a change does to the tube is catalogue.py's. Type, engine, storage mode and
whether a tube is temporary decide how its rows are kept: these never change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.errors import QueueError, failure
from tandemq.model.record import KIND_CONFIG
from tandemq_server.engine import lifecycle, policy
from tandemq_server.engine.arguments import lua_type
from tandemq_server.engine.system_spaces import TUBE_OPTS

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort, TubePort

#: What `alter_tube` changes; ttl, ttr and pri are those of puts to come.
ALTERABLE = policy.OPTIONS | {"ttl", "ttr", "pri"}
#: Words to `create_tube` itself, not properties of the tube.
_WORDS = frozenset({"if_not_exists", "on_task_change"})


def alter_tube(engine: EnginePort, name: Any, opts: Any) -> TubePort:
    """Change options of a tube: what is left out stays, nil (None) goes back to the default.

    Tasks, waiting consumers and rights stay as they are. Raises code 32, naming the option; then
    nothing has changed.
    """
    tube = engine.tubes.get(name) if type(name) is str else None
    if tube is None:
        raise failure(f"attempt to index a nil value (tube '{name}' does not exist)")
    if opts is None or opts == []:
        opts = {}
    if type(opts) is not dict:
        raise failure(f"Invalid options of alter_tube: expected a map, got {lua_type(opts)}")
    kind = type(tube.inner)
    if kind.records or kind.lanes:
        raise failure(f"A tube of type {tube.type} cannot be altered")
    if fixed := sorted(set(opts) - ALTERABLE):
        known = ", ".join(sorted(ALTERABLE))
        raise failure(f"Option {fixed[0]} of a tube cannot be altered (these can: {known})")
    wanted = {**tube.opts, **opts}
    full = kind.check_options({key: value for key, value in wanted.items() if value is not None})
    policy.check(engine, kind, tube.name, tube.type, full)
    _check_circle(engine, tube, full.get("dead_letter"))
    if full != tube.opts:
        _change(engine, tube, full)
    return tube


def _change(engine: EnginePort, tube: TubePort, full: dict[str, Any]) -> None:
    """One record. A driver that cannot serve so keeps what it had."""
    try:
        type(tube.inner).new(tube.space, full)
    except Exception as error:
        raise failure(
            f'The "{tube.type}" driver cannot serve tube {tube.name} with these options: '
            f"{type(error).__name__}: {error}"
        ) from None
    if engine.running:
        lifecycle.stop_driver(engine, tube)
    engine.catalogue.set(tube.name, TUBE_OPTS, full)
    engine.commit(KIND_CONFIG, None)
    if engine.running:
        lifecycle.start_driver(engine, tube)


def _check_circle(engine: EnginePort, tube: TubePort, target: Any) -> None:
    """Dead letters must not come round to where they died."""
    seen = [tube.name]
    while target is not None:
        seen.append(target)
        if target == tube.name:
            way = " -> ".join(seen)
            raise failure(f"Invalid value of dead_letter: dead letters would go in a circle: {way}")
        following = engine.tubes.get(target)
        target = following.opts.get("dead_letter") if following is not None else None


def check_same(tube: TubePort, kind: Any, opts: dict[str, Any]) -> None:
    """`create_tube` with `if_not_exists` of a tube that is there: it must be the one wanted.

    Only what the caller names is compared. Raises code 32 with what differs, and what helps.
    """
    differs = []
    if kind != tube.type:
        differs.append(f"its type is {tube.type}, not {kind}")
    else:
        differs = list(_differing(tube, opts))
    if not differs:
        return
    named = {word.partition(" ")[0] for word in differs}
    hint = f"; queue.alter_tube('{tube.name}', ...) changes it" if named <= ALTERABLE else ""
    raise failure(f"Tube {tube.name} exists and differs: {', '.join(differs)}{hint}")


def _differing(tube: TubePort, opts: dict[str, Any]) -> list[str]:
    given = {key: value for key, value in opts.items() if key not in _WORDS and value is not None}
    wanted = dict(given)
    if not (type(tube.inner).records or type(tube.inner).lanes):
        try:
            # As it would be kept: 60.0 tasks are 60.
            wanted = type(tube.inner).check_options({**tube.opts, **given})
        except QueueError as error:
            return [error.text]
    found = []
    for option in sorted(given):
        if option == "temporary":
            there: Any = tube.space.temporary
        else:
            there = tube.opts.get(option)
        if wanted[option] != there and (there or wanted[option]):
            shown = "not set" if there is None else there
            found.append(f"{option} is {shown}, not {wanted[option]}")
    return found
