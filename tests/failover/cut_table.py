"""Makes cuts.md beside it from what test_cuts.py printed: `... cut_table witness=FILE etcd=FILE`.

The page itself is such a FILE, too, for columns that stay.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

HEAD = """# Every cut, and who served

Six ways lead between two nodes and their arbiter, one for each direction: 64 combinations of cut
ways, and seven in which links are refused instead of swallowing what is sent. Each was tried under
load, with real nodes behind toxiproxy and a real arbiter ({names}), for 6.5 s, then healed; at the
end nothing acknowledged was missing, nothing was in two hands, and both logs were the same.

A cell says who led → who served, the longest silence (without an acknowledged put) and
the time from healing until both nodes confirmed again, in seconds, on a busy machine with two
cores. `x>y`: what x sends to y is lost; `x-y`: refused; *s* is the arbiter. What they have in
common: [arbiters.md](../../docs/arbiters.md#which-way-may-be-cut).

`CUTS=all CUTS_ARBITER=etcd make unit T=tests/failover/test_cuts.py` tries them all again (`etcd3`:
three members; without it: the witness); `make test` tries those that differ most.

"""

#: As the page has them.
NAMES = {"etcd3": "etcd with three members"}


def rows(name: str, path: str) -> dict[str, dict[str, object]]:
    """By the cut: led, served, silence_s, pair again_s."""
    found: dict[str, dict[str, object]] = {}
    if path.endswith(".md"):
        lines = [line for line in Path(path).read_text().splitlines() if line.startswith("| ")]
        heads, *rest = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        at = heads.index(name)
        for cells in rest:
            who, silence, again = cells[at].split()
            led, _, served = who.partition("→")
            found[cells[0]] = {"led": led, "served": served, "silence_s": float(silence)}
            found[cells[0]]["pair again_s"] = float(again)
        return found
    for line in Path(path).read_text().splitlines():
        if " ROW " in line:
            row = ast.literal_eval(line.split(" ROW ", 1)[1])
            found[str(row["cut"])] = row
    return found


def main(words: list[str]) -> int:
    tables = {name: rows(name, path) for name, path in (word.split("=", 1) for word in words)}
    cuts = sorted(set().union(*tables.values()), key=lambda cut: ("-" in cut, cut.count(" "), cut))
    out = [HEAD.format(names=" or ".join(NAMES.get(name, name) for name in tables))]
    out.append(f"| cut | {' | '.join(tables)} |\n|---|{'---|' * len(tables)}\n")
    for cut in cuts:
        cells = [cut]
        for table in tables.values():
            row = table[cut]
            seconds = f"{row['silence_s']:.2f} {row['pair again_s']:.2f}"
            cells.append(f"{row['led']}→{row['served']} {seconds}")
        out.append(f"| {' | '.join(cells)} |\n")
    sys.stdout.write("".join(out))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
