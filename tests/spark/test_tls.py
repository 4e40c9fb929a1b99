"""Spark's writer and reader of tubes against a node that speaks TLS alone: one whole batch job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trustme
import yaml

from demo.node_process import NodeProcess

ROWS = 500
#: Workers have the variables with which Spark was started: of those one that is always there.
VARIABLE = "HOME"

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The options of a tube `rows` on a node whose certificate is for queue.example."""
    authority = trustme.CA()
    leaf = authority.issue_cert("queue.example")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    leaf.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    leaf.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    settings = {
        "listen": "127.0.0.1:0",
        "admin": "127.0.0.1:0",
        "data_dir": str(tmp_path / "data"),
        "tls": {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")},
        "users": [{"name": "boss", "password_env": VARIABLE, "grants": ["*"]}],
        "tubes": [{"name": "rows", "type": "fifo"}],
    }
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(settings))
    words = ("--config", str(tmp_path / "node.yaml"))
    with NodeProcess(tmp_path / "node.log", *words) as node:
        yield {
            "servers": node.address,
            "tube": "rows",
            "user": "boss",
            "passwordEnv": VARIABLE,
            "tlsCa": str(tmp_path / "ca.pem"),
            "tlsServerName": "queue.example",
        }


def test_a_job_writes_and_reads_back_over_tls(spark: Any, secure: dict[str, str]) -> None:
    """The plain way in is refused by name, so that what came back came over TLS."""
    rows = spark.range(ROWS).withColumnRenamed("id", "n")
    plain = {name: value for name, value in secure.items() if not name.startswith("tls")}
    with pytest.raises(Exception, match="speaks TLS"):
        rows.write.format("tandemq").mode("append").options(**plain).save()
    unknown = {**secure, "passwordEnv": "NOBODY_SET_THIS"}
    with pytest.raises(Exception, match="NOBODY_SET_THIS"):
        rows.write.format("tandemq").mode("append").options(**unknown).save()
    rows.write.format("tandemq").mode("append").options(**secure).save()
    tasks = spark.read.format("tandemq").options(**secure).load()
    seen = tasks.select("payload", "state").collect()
    assert sorted(msgpack.unpackb(task["payload"])["n"] for task in seen) == list(range(ROWS))
    assert {task["state"] for task in seen} == {"r"}
