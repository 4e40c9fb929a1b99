"""Procedures of docs/operations.md, each by the page's own commands, on real nodes under load."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tarantool
import trustme

from tests.cluster.cluster_nodes import until
from tests.deploy.machines import Machine, Site, blocks, first_release, parts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
#: What two nodes of the first release left: 40 tasks of 50 in `old`, three of them buried.
GOLDEN = Path(__file__).with_name("golden") / "first_release"
PASSWORD = "change-me-on-both-nodes"
STATUS = """
curl --silent -H "Authorization: Bearer $TANDEMQ_ADMIN_TOKEN" http://127.0.0.1:8081/v1/status
"""
ALONE = """
name: a
listen: 192.0.2.11:3301
data_dir: /var/lib/tandemq/a
tls: {cert: /etc/tandemq/cert.pem, key: /etc/tandemq/key.pem}
"""
TOKENS = """
admin_token_file: /etc/tandemq/admin.first
admin_second_token_file: /etc/tandemq/admin.second
"""


class Load:
    """A producer that goes on wherever somebody serves; what was acknowledged to it."""

    def __init__(self, machines: list[Machine]) -> None:
        self.machines, self.password = machines, PASSWORD
        self.acked: set[int] = set()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._put)

    def dial(self, machine: Machine, password: str | None = None) -> tarantool.Connection:
        host, port = machine.address.split(":")
        return tarantool.Connection(
            host,
            int(port),
            user="worker",
            password=password or self.password,
            fetch_schema=False,
            reconnect_max_attempts=0,
            socket_timeout=10,
        )

    def _put(self) -> None:
        numbers = itertools.count()
        for machine in itertools.cycle(self.machines):
            if self.over.wait(0.01):
                return
            # Whatever the connector makes of a node that goes away in the midst of an answer.
            with contextlib.suppress(Exception), contextlib.closing(self.dial(machine)) as client:
                while not self.over.is_set():
                    number = next(numbers)
                    client.call("queue.tube.jobs:put", (number,))
                    self.acked.add(number)

    def more(self) -> None:
        """Wait until somebody served again."""
        before = len(self.acked)
        until(lambda: len(self.acked) > before + 5, 60)

    def __enter__(self) -> Load:
        self.thread.start()
        self.more()
        return self

    def stop(self) -> None:
        self.over.set()
        self.thread.join()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def tasks(self, machine: Machine, tube: str = "jobs") -> dict[int, Any]:
        """Payloads of a tube by id, from this node's own copy."""
        with contextlib.closing(self.dial(machine)) as client:
            found, after = {}, None
            while True:
                options = {"limit": 1000} | ({} if after is None else {"after": after})
                page = client.call(f"queue.tube.{tube}:list", (options,)).data[0]
                found |= {row[0]: row[2] for row in page["tasks"]}
                after = page["cursor"]
                if after is None:
                    return found


@contextlib.contextmanager
def ended(*machines: Machine) -> Iterator[None]:
    try:
        yield
    finally:
        for machine in machines:
            machine.end()


def follow(page: str, **machines: Machine) -> str:
    """What a block says, each part on its machine."""
    said = ""
    for names, script in parts(page):
        for name in names:
            said += machines[name].run(script)
    return said


def both(what: Callable[..., None], machines: tuple[Machine, ...], *words: str) -> None:
    """At once: a start can wait for the other one."""
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(what, machine, *words) for machine in machines]:
            done.result()


def started(a: Machine, b: Machine) -> None:
    """As the page has it for the first time: b is the replica by its configuration."""
    both(Machine.systemctl, (a, b), "enable")
    load = Load([a])

    def made() -> bool:
        with contextlib.suppress(Exception), contextlib.closing(load.dial(a)) as client:
            client.call("queue.create_tube", ("jobs", "fifo", {"if_not_exists": True}))
            return True
        return False

    until(made, 60)


def kept(load: Load, *machines: Machine) -> None:
    """Nothing acknowledged is missing on any of them."""
    for machine in machines:
        until(lambda machine=machine: load.acked <= set(load.tasks(machine).values()), 60)


def test_rolling_upgrades_from_the_first_release(tmp_path: Path) -> None:
    """Its own nodes begin where the repository's history is here, else today's on its files."""
    old = first_release(tmp_path / "old")
    site = Site.made(tmp_path, old)
    a, b = Machine(site, "a", 11, bool(old)), Machine(site, "b", 12, bool(old))
    for machine in (a, b):
        shutil.copytree(GOLDEN / machine.name, machine.data)
    handing_over, from_the_first = blocks("A rolling upgrade")
    with ended(a, b):
        both(Machine.systemctl, (a, b), "start")
        with Load([a, b]) as load:
            before = load.tasks(a, "old")
            assert len(before) == 40
            for page in ([from_the_first] if old else []) + [handing_over]:
                follow(page, a=a, b=b)
                load.more()
        # What only a node of today says of itself.
        assert '"summary"' in a.run(STATUS)
        kept(load, a, b)
        assert load.tasks(a, "old") == load.tasks(b, "old") == before


def test_secrets_are_rolled_a_third_node_joins_and_lost_ones_come_back(tmp_path: Path) -> None:
    site = Site.made(tmp_path)
    a, b = Machine(site, "a", 11), Machine(site, "b", 12)
    lost, joining, peer, _ = blocks("Another peer")
    with contextlib.ExitStack() as running:
        running.enter_context(ended(a, b))
        started(a, b)
        load = running.enter_context(Load([a, b]))
        roll_all(load, a, b)
        c = renewed(running, b, "c", 13)
        follow(joining, c=c)
        load.more()
        follow(peer, a=a, b=b)
        load.more()
        assert {one["name"] for one in json.loads(a.run(STATUS))["peers"]} == {"b", "c"}
        b.end()
        b = load.machines[1] = renewed(running, b, "b", 12)
        follow(lost, b=b)
        kept(load, b, c)
        # Now the master: the other one serves by force, then it comes back, empty.
        a.end()
        a = load.machines[0] = renewed(running, a, "a", 11)
        refused = b.run("/opt/tandemq/bin/tandemq role rw 2>&1 || true")
        assert "--force --at-lsn" in refused
        lsn = json.loads(b.run(STATUS))["lsn"]
        b.run(f"/opt/tandemq/bin/tandemq role rw --force --at-lsn {lsn}")
        follow(changed_about(lost), a=a)
        load.more()
        load.stop()
        kept(load, a, b, c)


def roll_all(load: Load, a: Machine, b: Machine) -> None:
    """Every secret by the page; the old ones are refused in the end."""
    to_files, steps, _certificate = blocks("Rolling a secret")
    for machine in (a, b):
        path = machine.root / "etc/tandemq" / f"{machine.name}.yaml"
        path.write_text(path.read_text() + machine.here(TOKENS))
        for which in ("first", "second"):
            machine.run(f"echo the-first-token-of-all > /etc/tandemq/admin.{which}")
    follow(to_files, a=a, b=b)
    for who in ("worker", "replicator", "admin"):
        page = steps.replace("WHO", who).replace("NEW-SECRET", f"the-new-one-of-{who}")
        follow(page, a=a, b=b)
    with pytest.raises(tarantool.error.DatabaseError):
        load.dial(a)
    assert '"status": 401' in a.run(STATUS)
    load.password = "the-new-one-of-worker"
    a.token = b.token = "the-new-one-of-admin"
    assert json.loads(a.run(STATUS))["writable"]


def test_a_certificate_is_replaced(tmp_path: Path) -> None:
    a = Machine(Site.made(tmp_path), "a", 11)
    (page,) = [page for page in blocks("Rolling a secret") if "cert.pem" in page]
    authority = trustme.CA()

    def issue(key: str, cert: str) -> str:
        made = authority.issue_cert("127.0.2.11")
        made.private_key_pem.write_to_path(str(a.root / key))
        made.cert_chain_pems[0].write_to_path(str(a.root / cert))
        return (a.root / cert).read_text()

    first = issue("etc/tandemq/key.pem", "etc/tandemq/cert.pem")
    a.write("a.yaml", ALONE)
    host, port = a.address.split(":")
    with ended(a):
        a.systemctl("start")
        assert ssl.get_server_certificate((host, int(port))) in first
        second = issue("root/new-key.pem", "root/new-cert.pem")
        follow(page.replace(" and b", ""), a=a)
        assert ssl.get_server_certificate((host, int(port))) in second


def renewed(running: contextlib.ExitStack, old: Machine, name: str, host: int) -> Machine:
    """A new machine with /etc/tandemq as another one has it; where that was, if it is the same."""
    kept = {path.name: path.read_text() for path in (old.root / "etc/tandemq").iterdir()}
    if old.name == name:
        old.root.rename(old.root.with_name(f"{name}-lost"))
    new = Machine(old.site, name, host)
    new.token = old.token
    running.enter_context(ended(new))
    for file, text in kept.items():
        text = text.replace(str(old.root), str(new.root)).replace(old.admin, new.admin)
        (new.root / "etc/tandemq" / file).write_text(text)
    return new


def test_both_move_to_other_machines(tmp_path: Path) -> None:
    site = Site.made(tmp_path)
    a, b = Machine(site, "a", 11), Machine(site, "b", 12)
    a2, b2 = Machine(site, "a", 21), Machine(site, "b", 22)
    page = blocks("Another peer")[3]
    with ended(a, b, a2, b2):
        started(a, b)
        with Load([a, b, a2, b2]) as load:
            first, second = page.split("# On the new machine b:")
            follow(first, b=b)
            follow("# On the new machine b:" + second, a=a, b=b2)
            load.more()
            a.run("/opt/tandemq/bin/tandemq switchover b")
            first, second = changed_about(page).split("# On the new machine a:")
            follow(first, a=a)
            # /etc/tandemq is copied, as the page says above.
            a2.write("a.yaml", (a.root / "etc/tandemq/a.yaml").read_text())
            second = re.sub(r"\n.*/primary\n", "\n", second)
            follow("# On the new machine a:" + second, a=a2, b=b2)
            until(lambda: "RUNNING" in a2.run("/opt/tandemq/bin/tandemq role rw || true"), 60)
            load.more()
        kept(load, a2, b2)


def changed_about(page: str) -> str:
    """The page's commands for the other node."""
    swap = {"a": "b", "b": "a"}
    there = r"(?<=[/@])[ab](?=[.\s]|$)|(?<=On )[ab]\b|(?<=machine )[ab]\b"
    page = re.sub(there, lambda found: swap[found[0]], page, flags=re.MULTILINE)
    return page.replace("192.0.2.12", "192.0.2.11").replace("192.0.2.22", "192.0.2.21")
