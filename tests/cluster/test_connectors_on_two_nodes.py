"""What connectors do to two nodes at once: settings said to a replica, the schema over a flip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest
import tarantool

from tests.cluster.cluster_nodes import Member, Pair, pair, until


def schema_version(member: Member) -> int:
    """What the header of a reply says."""
    client = member.connect()
    found: list[int] = []
    read = client._read_response

    def noted() -> Any:
        answer = read()
        found.append(_header(answer)[5])
        return answer

    client._read_response = noted
    client.call("queue.state")
    client.close()
    return found[-1]


def _header(packet: bytes) -> dict[int, int]:
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(packet)
    return dict(unpacker.unpack())


@pytest.fixture
def nodes(tmp_path: Path) -> Any:
    with pair(tmp_path) as both:
        yield both


def test_settings_said_to_a_replica_hold_when_it_leads(nodes: Pair) -> None:
    """The official Go example says queue.cfg to every node of its pool as it connects."""
    replica = nodes.b.connect()
    assert replica.call("queue.cfg", {"in_replicaset": True, "ttr": 77}).data in ([], None)
    with pytest.raises(tarantool.DatabaseError, match="Unknown option tttr"):
        replica.call("queue.cfg", {"tttr": 60})
    with pytest.raises(tarantool.DatabaseError, match="Invalid value of ttr: -1"):
        replica.call("queue.cfg", {"ttr": -1})
    # Nothing is changed yet, neither here nor on who leads.
    assert config(nodes.a)["ttr"] == 60
    nodes.a.switch_to(nodes.b)
    assert config(nodes.b) == {"in_replicaset": True, "ttr": 77}
    until(lambda: config(nodes.a) == {"in_replicaset": True, "ttr": 77})
    # Said once, applied once: what is said afterwards stays.
    nodes.b.connect().call("queue.cfg", {"ttr": 30})
    nodes.in_step()
    nodes.b.switch_to(nodes.a)
    assert config(nodes.a)["ttr"] == 30


def config(member: Member) -> dict[str, Any]:
    rows = member.connect(fetch_schema=True, encoding="utf-8").select("_tandem_config").data
    return {name: value for name, value in rows if name in ("ttr", "in_replicaset")}


def test_the_schema_moves_alike_on_both_nodes(nodes: Pair) -> None:
    """Connectors look at one number: it moves with tubes, never back, whoever serves."""
    first = schema_version(nodes.a)
    client = nodes.a.connect()
    client.call("queue.create_tube", "one", "fifo")
    made = schema_version(nodes.a)
    assert made > first
    for _ in range(3):
        client.call("queue.tube.one:put", "x")
    assert schema_version(nodes.a) == made
    nodes.in_step()
    assert schema_version(nodes.b) == made
    nodes.a.switch_to(nodes.b)
    assert schema_version(nodes.b) == made
    nodes.b.connect().call("queue.tube.one:drop")
    dropped = schema_version(nodes.b)
    assert dropped > made
    until(lambda: schema_version(nodes.a) == dropped)
    nodes.b.end()
    nodes.b.start()
    assert schema_version(nodes.b) == dropped
