"""One scenario: a cluster under load and faults, then healed, drained and checked."""

from __future__ import annotations

import os
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from tandemq_server.statemachine.roles import Role, Transition
from tandemq_server.storage.memory import MemoryDisk
from tests.simulation.sim_checks import Violation, check_end, check_history
from tests.simulation.sim_clients import Client, History
from tests.simulation.sim_history import write_history
from tests.simulation.sim_leases import Rules, check_leases
from tests.simulation.sim_load import create, janitor, producer, worker
from tests.simulation.sim_node import SimNode
from tests.simulation.sim_operator import drop_in_the_end, operators
from tests.simulation.sim_plan import Action, Plan
from tests.simulation.sim_sizes import in_force
from tests.simulation.sim_tubes import DEAD, dialect_of
from tests.simulation.sim_world import MS, SECOND, Network, World


class Scenario:
    """Built from a plan; `run` raises `Violation` with everything needed to understand it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        self.network = Network(self.world)
        self.history = History()
        self.clients: list[Client] = []
        #: Somebody promoted a node by force.
        self.forced = any(action.kind == "force" for action in plan.actions)
        self.machines: dict[str, SimNode] = {}
        self.kept_disks: dict[str, dict[str, bytes]] = {}
        #: (moment, node) of every promotion by force.
        self.forces: list[tuple[int, str]] = []
        #: (moment, node): it began to serve.
        self.leads: list[tuple[int, str]] = []
        for number, name in enumerate(plan.nodes):
            joining = () if name in plan.joining else plan.joining
            peers = [other for other in plan.nodes if other != name and other not in joining]
            node = SimNode(self.world, self.network, name, peers)
            node.machines = self.machines
            node.options = {
                "wal_mode": plan.wal_mode,
                "ttr": plan.ttr,
                "replication": {"ack": plan.ack, "solo_after": plan.solo_after},
                "keep": plan.sizes.keep,
                "segment_bytes": plan.sizes.segment,
                "window_bytes": plan.sizes.window,
                "retain_bytes": plan.sizes.retain,
                "snapshot_bytes": plan.sizes.snapshot,
                "page_bytes": plan.sizes.page,
            }
            node.drift_ppm = plan.drift_ppm[number]
            node.read_only = name != "a"
            node.observers.append(self._changed)
            self.machines[name] = node

    # -- the run ---------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            with in_force(self.plan.sizes):
                self._run()
        except Violation:
            raise
        except Exception as error:
            raise Violation("".join(traceback.format_exception(error))) from error

    def _run(self) -> None:
        self._begin()
        self._load()
        for action in self.plan.actions:
            self.world.after(action.at, partial(self._do, action))
        self.world.run(self.world.now + self.plan.actions[-1].at + SECOND)
        self._heal()
        self._drain()
        rescued = check_history(self.history, self.machines, self.plan, self.forced)
        if twice := check_leases(self.history, self._rules(), rescued):
            raise Violation(f"C2: doubly valid: {twice}")
        check_end(self.machines)
        if directory := os.environ.get("SIM_HISTORY"):
            write_history(Path(directory), self, rescued)

    def _rules(self) -> Rules:
        """What a judge of leases has to know of the run, beside what clients saw."""
        forced = []
        for at, name in self.forces:
            leads = [begun for begun, node in self.leads if node == name and begun >= at]
            forced.append((at, min(leads, default=at)))
        stepped = any(action.kind == "skew" for action in self.plan.actions)
        return Rules(int(self.plan.ttr * SECOND), stepped, tuple(forced))

    def _begin(self) -> None:
        a = self.machines["a"]
        for node in self.machines.values():
            if node.name not in self.plan.joining:
                node.start()
        self._until(lambda: a.core.state == "RUNNING", 30, "a does not begin to serve")
        for kind in self.plan.tubes:
            boss = Client(self.world, self.network, self.machines, "boss")
            boss.run(create(dialect_of(self.plan, kind).create()))
            self._until(lambda boss=boss: boss.stopped, 10, f"tube {kind} is not created")

    def _load(self) -> None:
        for number, tube in enumerate(self.plan.tubes):
            if tube == DEAD:
                continue
            client = self._client(f"p{number}")
            client.run(producer(client, self.history, tube, self.plan, 400 * MS))
        for number in range(self.plan.workers):
            client = self._client(f"w{number}")
            tube = self.plan.tubes[number % len(self.plan.tubes)]
            client.run(worker(client, self.history, tube, self.plan, 600 * MS))
        for name, script in operators(self.plan).items():
            client = self._client(name)
            client.run(script(client, self.history, self.plan))

    def _client(self, name: str) -> Client:
        client = Client(self.world, self.network, self.machines, name)
        self.clients.append(client)
        return client

    def _until(self, reached: Any, seconds: float, what: str) -> None:
        if not self.world.run_while(lambda: not reached(), seconds):
            raise Violation(f"liveness: {what} within {seconds:g} s")

    def _changed(self, node: SimNode, made: Transition) -> None:
        """Whoever begins to serve in good order has all that was committed in its own history."""
        if made.target is not Role.RUNNING:
            return
        self.leads.append((self.world.now, node.name))
        if node.engine.now > node.clock.now() + SECOND:
            self.world.broken = f"C9: time stands still on {node.name}"
        lineage = node.engine.store.lineage
        known = {term.id: place for place, term in enumerate(lineage)}
        for other in self.machines.values():
            theirs = other.engine.store.lineage if other is not node and other.alive else []
            place = known.get(theirs[-1][1]) if theirs else None
            if place is None or place + 1 >= len(lineage) or lineage[place + 1][5]:
                continue
            if other.core.commit_lsn >= lineage[place + 1][3]:
                self.world.broken = (
                    f"C6: {node.name} begins term {lineage[-1].number} without records up to LSN "
                    f"{other.core.commit_lsn} that {other.name} has committed"
                )

    # -- faults ----------------------------------------------------------------------------------

    def _do(self, action: Action) -> None:
        self.world.say(f"* {action}")
        node = self.machines[action.node]
        after = self.world.after
        match action.kind:
            case "switch":
                self._switch(node, self._other(node))
            case "promote" | "force" | "demote":
                if node.alive:
                    if action.kind == "force":
                        self.forces.append((self.world.now, node.name))
                    node.request(action.kind == "demote", force=action.kind == "force")
            case "kill" | "power":
                if node.alive:
                    (node.kill if action.kind == "kill" else node.power_cut)()
                after(action.lasts, partial(self._restart, node, action.value))
            case "pause":
                node.pause()
                after(action.lasts, node.resume)
            case "cut" | "cut_out" | "cut_in":
                self._cut(node, self._other(node), action)
            case "drop_clients":
                for client in self.clients:
                    if client.connected_to == node.name:
                        client._lost()
            case "skew":
                node.skew_us = action.value * SECOND
            case "snapshot":
                node.deliver(node.snapshot)
            case "join":
                self._restart(node, "read-only")
            case _:
                self._ill(node, action)

    def _ill(self, node: SimNode, action: Action) -> None:
        """What befalls a disk, or a process in the middle of its work on it."""
        after, lasts = self.world.after, action.lasts
        match action.kind:
            case "disk_error":
                operation, error, nth = action.value
                node.ill = True
                node.read_faults += operation == "read"
                node.disk.fail(operation, nth, error)
                after(lasts, partial(self._restart, node, "same"))
            case "full":
                node.disk.full = True
                after(lasts, partial(setattr, node.disk, "full", False))
                after(lasts // 2, partial(self._restart, node, "same"))
            case "slow":
                usual, node.weather.sync_us = node.weather.sync_us, action.value
                after(lasts, partial(setattr, node.weather, "sync_us", usual))
            case "trap":
                region, nth, fate = action.value
                node.weather.set_trap(region, nth, partial(self._die, node, fate, lasts))
            case "bad_start":
                nth, fate = action.value
                node.kill()
                node.weather.set_trap("recovery", nth, partial(self._die, node, fate, lasts))
                after(lasts, partial(self._restart, node, "same"))
            case _:
                self._other_disk(node, action)

    def _other_disk(self, node: SimNode, action: Action) -> None:
        """A machine that comes back with an empty or an old disk, or another configuration.

        Nobody promises that the only copy of something survives its disk: another has it all.
        """
        if action.kind == "keep_disk":
            self.kept_disks[node.name] = node.disk.contents()
            return
        if action.kind == "peers":
            node.kill()
            node.peer_names = list(action.value)
        elif action.kind == "config":
            node.kill()
            node.options = {**node.options, **action.value[0]}
            node.options["replication"] = {**node.options["replication"], **action.value[1]}
        else:
            assert action.kind in ("empty_disk", "old_disk"), action
            covered = any(self._covers(other, node) for other in self.machines.values())
            files = self.kept_disks.get(node.name)
            if not covered or (action.kind == "old_disk" and files is None):
                return
            node.kill()
            node.lose_disk()
            node.use_disk(MemoryDisk(files if action.kind == "old_disk" else None, node.name))
        change = "same" if action.kind in ("config", "peers") else "read-only"
        self.world.after(action.lasts, partial(self._restart, node, change))

    def _covers(self, other: SimNode, node: SimNode) -> bool:
        """Another node serves and has on its disk whatever this one has on its own."""
        if other is node or not other.alive or other.core.state != "RUNNING" or not node.alive:
            return False
        same = other.engine.store.lineage == node.engine.store.lineage
        return same and other.on_disk(synced=True) >= node.on_disk(synced=False)

    def _die(self, node: SimNode, fate: str, lasts: int) -> None:
        (node.power_cut if fate == "power" else node.kill)()
        self.world.after(lasts, partial(self._restart, node, "same"))

    def _other(self, node: SimNode) -> SimNode:
        return next(other for other in self.machines.values() if other is not node)

    def _cut(self, node: SimNode, other: SimNode, action: Action) -> None:
        out, into = (node.name, other.name), (other.name, node.name)
        ways = {"cut": (out, into), "cut_out": (out,), "cut_in": (into,)}[action.kind]
        for way in ways:
            self.network.set_cut(*way, True)
            self.world.after(action.lasts, partial(self.network.set_cut, *way, False))

    def _switch(self, target: SimNode, source: SimNode) -> None:
        """The planned flip, as an operator's tool does it; back again when it fails."""
        if not (source.alive and target.alive and source.core.state == "RUNNING"):
            return

        def stopped(settled: Any) -> None:
            if settled is not None and settled.ok and target.alive:
                target.request(False, done=begun)

        def begun(settled: Any) -> None:
            if (settled is None or not settled.ok) and source.alive:
                source.request(False)

        source.request(True, done=stopped)

    def _restart(self, node: SimNode, change: str) -> None:
        if node.alive:
            return
        if change != "same":
            node.read_only = change == "read-only"
        node.start()
        if not node.alive:
            # Whoever watches over it tries again.
            self.world.after(SECOND, partial(self._restart, node, "same"))

    # -- after the faults ------------------------------------------------------------------------

    def _heal(self) -> None:
        self.world.say("* heal")
        self.network.heal()
        nodes = list(self.machines.values())
        for node in nodes:
            node.heal_disk()
            peers = [other.name for other in nodes if other is not node]
            if (node.options["wal_mode"], node.peer_names) != (self.plan.wal_mode, peers):
                # Nodes of different modes make no pair: whoever heals makes them equal, and has
                # them know each other.
                node.options["wal_mode"], node.peer_names = self.plan.wal_mode, peers
                node.kill()
            node.resume()
            if not node.alive:
                node.start()
        self.world.run(self.world.now + 6 * SECOND)
        if sum(node.core.state == "RUNNING" for node in nodes) > 1:
            raise Violation("P4: two nodes lead, seconds after they could hear of each other")
        # A person looks at what came of it and promotes one, if none or both want to.
        for attempt in range(6):
            if self.world.run_while(lambda: not self._in_step(), 8.0):
                return
            self._promote_best(forced=attempt > 0)
            self.world.run(self.world.now + 12 * SECOND)
        raise Violation(f"liveness: no single master in step: {self._states()}")

    def _promote_best(self, forced: bool) -> None:
        nodes = [node for node in self.machines.values() if node.alive]
        best = max(
            nodes,
            key=lambda n: (
                n.core.state == "RUNNING",
                n.engine.store.lineage[-1].number if n.engine.store.lineage else 0,
                n.engine.lsn,
            ),
        )
        for node in nodes:
            if node is not best:
                node.request(True)
        self.world.run(self.world.now + SECOND)
        self.world.say(f"* promote {best.name}{' by force' if forced else ''}")
        if forced and best.core.state == "RUNNING":
            # Force is a decision about a new term: the old one ends first.
            best.request(True)
            self.world.run(self.world.now + SECOND)
        self.forced = self.forced or forced
        if forced:
            self.forces.append((self.world.now, best.name))
        best.request(False, force=forced)

    def _in_step(self) -> bool:
        nodes = list(self.machines.values())
        states = sorted(node.core.state for node in nodes if node.alive)
        if len(states) != len(nodes) or states.count("RUNNING") != 1:
            return False
        first, *others = nodes
        return all(
            node.engine.lsn == first.engine.lsn
            and node.engine.store.lineage == first.engine.store.lineage
            and node.wal.durable_lsn == node.wal.written_lsn
            for node in (first, *others)
        )

    def _states(self) -> str:
        return "; ".join(
            f"{n.name} {n.core.state} lsn {n.engine.lsn} {n.role.fiber.ro_reason}"
            if n.alive
            else f"{n.name} is down"
            for n in self.machines.values()
        )

    def _drain(self) -> None:
        """Everything still to be done is done, in peace, by new workers.

        The old ones end: one whose ack was cut by a forced promotion may hold, unknowingly and
        for as long as it lives, a task that it finished.
        """
        for client in self.clients:
            if client.name[0] in "wj":
                client.retire()
        for number, tube in enumerate(self.plan.tubes):
            client = self._client(f"d{number}")
            client.run(worker(client, self.history, tube, self.plan, 5 * MS, calm=True))
        if self.plan.calls:
            client = self._client("j1")
            client.run(janitor(client, self.history, self.plan, calm=True))
        if "y_dropped" in self.plan.dimensions:
            client = self._client("j6")
            client.run(drop_in_the_end(client, self.history))

        def busy() -> bool:
            running = [n for n in self.machines.values() if n.alive and n.core.state == "RUNNING"]
            if len(running) != 1 or any(not c.stopped for c in self.clients if c.name[0] == "p"):
                return True
            tubes = running[0].engine.tubes
            return any(tube.space.rows for tube in tubes.values())

        # A producer may have all its numbers before it; a session may still have to expire.
        if not self.world.run_while(busy, 60 + 10 * self.plan.ttr):
            raise Violation(f"liveness: tasks are left: {self._states()}")
        self.world.run(self.world.now + SECOND)
        self._until(self._in_step, 15, "the replica is not in step")
