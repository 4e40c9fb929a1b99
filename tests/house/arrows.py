"""Who imports whom, drawn and counted: `python -m tests.house.arrows [--draw] [CHECKOUT]`.

A *room* is a folder with modules in it, an *arrow* one room's import of another, for a type too. A
*floor* is a step of the longest way down, rooms of one circle counted as one. An arrow goes *up* if
no order of the rooms spares it: of a circle's arrows as few as a simple search finds. Reads the old
layout (rooms as top-level names) as well, so that a checkout of then can be compared.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise, permutations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What is in no wheel, and what only looks like a room.
LEFT_OUT = {"benchmarks", "build", "demo", "deploy", "docs", "examples", "site", "tests"}
#: Rooms of one circle up to which every order of them is tried.
TRIED_MAX = 7
Graph = Mapping[str, Mapping[str, int]]


def modules(root: Path) -> dict[str, Path]:
    """Every module of the product by the name others import it by."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if parts[0].startswith(".") or parts[0] in LEFT_OUT or len(parts) == 1:
            continue
        names = parts[:-1] if parts[-1] == "__init__.py" else (*parts[:-1], path.stem)
        if parts[0] == "src":
            continue
        if parts[0] == "client" and len(parts) > 1 and parts[1] == "tandemq":
            names = names[1:]
        elif (root / "src" / "tandemq_server" / parts[0]).exists():
            names = ("tandemq_server", *names)
        found[".".join(names)] = path
    return found


def imported(path: Path, known: Mapping[str, Path]) -> set[str]:
    """Modules of ours that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else node.module)
    return found & known.keys()


def circles(graph: Graph) -> list[list[str]]:
    """Strongly connected parts, those below first; most are of one node."""
    seen: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        seen[node] = low[node] = len(seen)
        stack.append(node)
        for other in graph.get(node, {}):
            if other not in seen:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == seen[node]:
            at = stack.index(node)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in seen:
            visit(node)
    return found


def floors(graph: Graph) -> list[list[str]]:
    """Rooms by floor, the ground first."""
    height: dict[str, int] = {}
    for circle in circles(graph):
        below = {height[one] for node in circle for one in graph[node] if one not in circle}
        for node in circle:
            height[node] = 1 + max(below, default=-1)
    by_floor: dict[int, list[str]] = defaultdict(list)
    for node, floor in sorted(height.items()):
        by_floor[floor].append(node)
    return [by_floor[floor] for floor in sorted(by_floor)]


def upward(graph: Graph) -> list[tuple[str, str]]:
    """Arrows against the order that has fewest of them, each circle by itself."""
    found: list[tuple[str, str]] = []
    for circle in circles(graph):
        if len(circle) > 1:
            found += min(_against(graph, order) for order in _orders(graph, circle))
    return found


def _orders(graph: Graph, circle: list[str]) -> Iterable[list[str]]:
    if len(circle) <= TRIED_MAX:
        yield from (list(order) for order in permutations(circle))
        return
    # Least used first goes to the top; neighbours change places while that spares an arrow.
    order = sorted(circle, key=lambda node: len(graph[node].keys() & set(circle)))
    best = len(_against(graph, order))
    changed = True
    while changed:
        changed = False
        for one, two in pairwise(range(len(order))):
            other = [*order]
            other[one], other[two] = other[two], other[one]
            if len(_against(graph, other)) < best:
                order, best, changed = other, len(_against(graph, other)), True
    yield order


def _against(graph: Graph, order: list[str]) -> list[tuple[str, str]]:
    place = {node: number for number, node in enumerate(order)}
    return [
        (one, two)
        for one in order
        for two in graph[one]
        if two in place and place[two] > place[one]
    ]


def drawing(root: Path) -> tuple[dict[str, dict[str, int]], dict[str, Counter[str]]]:
    """(imports between modules, the same between rooms with their numbers)."""
    known = modules(root)
    inner = {name: dict.fromkeys(imported(path, known) - {name}, 1) for name, path in known.items()}

    def room(name: str) -> str:
        return ".".join(known[name].parent.relative_to(root).parts).removeprefix("client.")

    rooms: dict[str, Counter[str]] = {room(name): Counter() for name in known}
    for name, others in inner.items():
        rooms[room(name)].update(room(other) for other in others if room(other) != room(name))
    return inner, rooms


def counted(root: Path) -> dict[str, int]:
    """The numbers of a drawing."""
    inner, rooms = drawing(root)
    knots = [circle for circle in circles(inner) if len(circle) > 1]
    return {
        "modules": len(inner),
        "rooms": len(rooms),
        "floors": len(floors(rooms)),
        "arrows between rooms": sum(map(len, rooms.values())),
        "of these upward": len(upward(rooms)),
        "circles of rooms": sum(len(circle) > 1 for circle in circles(rooms)),
        "circles of modules": len(knots),
        "modules in circles": sum(map(len, knots)),
        "largest circle of modules": max(map(len, knots), default=0),
    }


def main(argv: list[str]) -> None:
    root = Path(next((one for one in argv if not one.startswith("-")), ROOT)).resolve()
    for what, number in counted(root).items():
        print(f"{what:26} {number:5}")
    if "--draw" in argv:
        _, rooms = drawing(root)
        for number, names in reversed(list(enumerate(floors(rooms)))):
            print(f"floor {number}: {'  '.join(names)}")
        for one, two in upward(rooms):
            print(f"upward: {one} -> {two} ({rooms[one][two]})")


if __name__ == "__main__":
    main(sys.argv[1:])
