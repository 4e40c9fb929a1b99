"""The console in a real browser against two real nodes: every view and action, a switch-over."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.cluster.cluster_nodes import Member, Pair, until
from tests.console.conftest import TOKEN, Open

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
CLUSTER = "#/cluster"


def counts(member: Member, tube: str = "jobs") -> dict[str, int]:
    found = member.connect().call("queue.statistics", tube).data[0][b"tasks"]
    return {name.decode(): number for name, number in found.items()}


def choose_yes(page: Page, label: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=label, exact=True).click(timeout=15_000)


def toast(page: Page, text: str) -> None:
    expect(page.locator(".toast", has_text=re.compile(text)).last).to_be_visible()


# -- views -----------------------------------------------------------------------------------------


def test_the_cluster_both_nodes_and_their_states(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, CLUSTER)
    a, b = page.locator("[data-node=a]"), page.locator("[data-node=b]")
    expect(a.locator(".state")).to_have_text("RUNNING")
    expect(a.locator("g.lit")).to_have_attribute("data-state", "RUNNING")
    expect(b.locator("g.lit")).to_have_attribute("data-state", "INIT")
    expect(a.locator(".badge")).to_have_text("writable")
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#transitions + .scroll")).to_contain_text("STARTUP → RUNNING")
    expect(page.locator("#flips + .scroll")).to_contain_text("loses nothing")
    expect(page.locator(".chart canvas")).to_have_count(2)
    expect(page).to_have_title(re.compile("^a RUNNING"))


def test_what_changes_is_seen_without_a_reload(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, CLUSTER)
    lsn = page.locator("[data-node=a] .lsn")
    expect(lsn).to_have_text(re.compile(r"\d"))
    before = lsn.inner_text()
    nodes.a.connect().call("queue.tube.dead:put", "one")
    expect(lsn).not_to_have_text(before)
    label = page.locator(".chart").nth(1)
    client = nodes.a.connect()
    for _ in range(5):
        client.call("queue.tube.dead:put", "more")
    expect(label).to_have_attribute("aria-label", re.compile(r"put \d"))


def test_tubes_are_listed_and_found(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, "#/tubes")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    jobs = rows.filter(has=page.get_by_role("link", name="jobs"))
    expect(jobs).to_contain_text("fifottl")
    page.get_by_label("Name contains").fill("craw")
    expect(rows).to_have_count(1)
    page.get_by_role("link", name="crawl").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("crawl")
    expect(page.locator(".facts")).to_contain_text("11 ready, 1 taken")
    page.get_by_label("Sub-queue").fill("host1.example")
    page.get_by_label("Sub-queue").press("Enter")
    expect(page.locator("tbody tr")).to_have_count(4)


def test_payloads_are_shown_as_json_and_never_as_markup(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, "#/tubes/jobs")
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.locator("tbody tr").nth(1)).to_contain_text("user1@example.org")
    page.get_by_role("button", name="More").click()
    expect(page.locator("tbody")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("tbody img").count() == 0
    long = page.locator("details").last
    long.locator("summary").click()
    expect(long.locator("pre")).to_contain_text('"long": [')
    page.get_by_role("button", name="Back", exact=True).click()
    expect(page.locator("tbody tr").first).to_contain_text("user0@example.org")
    page.get_by_label("State", exact=True).select_option("taken")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("127.0.0.1:")


def test_sessions_and_what_they_hold(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, "#/sessions")
    row = page.locator("tbody").first.locator("tr").first
    expect(row).to_contain_text("attached")
    expect(row).to_contain_text("guest")
    expect(row).to_contain_text("crawl")
    row.get_by_role("link", name="jobs").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("jobs")


# -- actions ---------------------------------------------------------------------------------------


def test_one_task_is_kicked_buried_released_deleted(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, "#/tubes/jobs")
    state = page.get_by_label("State", exact=True)
    state.select_option("buried")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Kick task 10", exact=True).click()
    toast(page, "kick: 1 of 1")
    expect(page.locator("tbody tr")).to_have_count(2)
    state.select_option("ready")
    page.get_by_role("button", name="Bury task 20", exact=True).click()
    toast(page, "bury: 1 of 1")
    state.select_option("taken")
    expect(page.locator("tbody tr")).to_have_count(1)
    task = page.locator("tbody tr td:nth-child(2)").inner_text()
    page.get_by_role("button", name=f"Release task {task}", exact=True).click()
    choose_yes(page, "Release")
    toast(page, "release: 1 of 1")
    expect(page.locator("tbody")).to_contain_text("no such task")
    state.select_option("")
    page.get_by_role("button", name="Delete task 30", exact=True).click()
    choose_yes(page, "Cancel")
    page.get_by_role("button", name="Delete task 30", exact=True).click()
    choose_yes(page, "Delete")
    toast(page, "delete: 1 of 1")
    expect(page.get_by_label("Choose task 30", exact=True)).to_have_count(0)
    found = counts(nodes.a)
    assert (found["taken"], found["buried"], found["total"]) == (0, 3, 71)


def test_many_tasks_are_moved_and_kicked(nodes: Pair, open_page: Open) -> None:
    before, dead = counts(nodes.a), counts(nodes.a, "dead")["total"]
    page = open_page(nodes.a, "#/tubes/jobs")
    for task in (40, 41):
        page.get_by_label(f"Choose task {task}", exact=True).check()
    bar = page.get_by_role("group", name="Chosen tasks")
    expect(bar).to_contain_text("2 chosen")
    bar.get_by_role("button", name="Move").click()
    page.get_by_label("To the tube").fill("nowhere")
    choose_yes(page, "Move")
    toast(page, "there is no tube 'nowhere'")
    bar.get_by_role("button", name="Move").click()
    page.get_by_label("To the tube").fill("dead")
    choose_yes(page, "Move")
    toast(page, "move: 2 of 2")
    assert counts(nodes.a, "dead")["total"] == dead + 2
    assert counts(nodes.a)["total"] == before["total"] - 2
    page.get_by_label("State", exact=True).select_option("buried")
    whole = page.get_by_role("group", name="All tasks of the state")
    whole.get_by_role("button", name="Kick").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Kick {before['buried']} buried tasks?")
    choose_yes(page, "Kick")
    toast(page, f"kick: {before['buried']} of {before['buried']}")
    assert counts(nodes.a)["buried"] == 0


def test_a_tube_is_paused_and_its_dead_letters_sent_back(nodes: Pair, open_page: Open) -> None:
    client = nodes.a.connect()
    client.call("queue.create_tube", "lost", "fifo")
    client.call("queue.create_tube", "fails", "fifo", {"max_attempts": 1, "dead_letter": "lost"})
    client.call("queue.tube.fails:put", "one")
    client.call("queue.tube.fails:release", client.call("queue.tube.fails:take", 0).data[0][0])
    page = open_page(nodes.a, "#/tubes/lost")
    flow = page.get_by_role("group", name="The whole tube")
    expect(page.locator("tbody tr")).to_contain_text("task 0 of fails, dead after 1 attempts")
    expect(flow).to_contain_text("Dead letters of fails")
    expect(flow.get_by_role("link", name="fails")).to_have_attribute("href", "#/tubes/fails")
    flow.get_by_role("button", name="Pause puts").click()
    toast(page, "pause puts: puts paused")
    flow.get_by_role("button", name="Pause takes").click()
    expect(flow).to_contain_text("puts and takes paused")
    page.get_by_role("link", name="Tubes").first.click()
    expect(page.locator("tbody tr", has_text="lost")).to_contain_text("puts and takes paused")
    page.get_by_role("link", name="lost").click()
    flow.get_by_role("button", name="Resume puts").click()
    flow.get_by_role("button", name="Resume takes").click()
    toast(page, "resume takes: all goes on")
    flow.get_by_role("button", name="Send back").click()
    choose_yes(page, "Cancel")
    assert counts(nodes.a, "lost")["ready"] == 1
    flow.get_by_role("button", name="Send back").click()
    choose_yes(page, "Send back")
    toast(page, "sent back: 1")
    assert (counts(nodes.a, "fails")["ready"], counts(nodes.a, "lost")["total"]) == (1, 0)
    for name in ("fails", "lost"):
        client.call(f"queue.tube.{name}:truncate")
        client.call(f"queue.tube.{name}:drop")


def test_a_snapshot_is_written(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, CLUSTER)
    page.get_by_role("button", name="Snapshot").click()
    toast(page, r"written at LSN \d")
    assert list(nodes.a.data.rglob("*.snap"))


def test_who_did_what_is_on_the_page_of_the_cluster(nodes: Pair, open_page: Open) -> None:
    client = nodes.a.connect()
    client.call("queue.create_tube", "told_of", "fifo")
    client.call("queue.tube.told_of:drop")
    page = open_page(nodes.a, "#/cluster")
    trail = page.get_by_role("region", name="Who did what")
    expect(trail.get_by_role("row").filter(has_text="told_of")).to_have_count(2)
    newest = trail.get_by_role("row").nth(1)
    expect(newest).to_contain_text("guest")
    expect(newest).to_contain_text("told_of")
    expect(newest).to_contain_text("done")


def test_a_replica_shows_its_copy_and_refuses_changes(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.b, "#/tubes/jobs")
    page.get_by_role("button", name="Bury task 50", exact=True).click()
    toast(page, "only a node that is RUNNING")


# -- a switch-over, seen live ----------------------------------------------------------------------


def test_a_switch_over_is_confirmed_and_seen_as_it_happens(nodes: Pair, open_page: Open) -> None:
    page, onlooker = open_page(nodes.a, CLUSTER), open_page(nodes.b, CLUSTER)
    term = int(nodes.a.status()["term"]["number"])
    page.get_by_role("button", name="Switch over to b").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nothing that was acknowledged is lost")
    choose_yes(page, "Cancel")
    assert nodes.a.status()["state"] == "RUNNING"
    page.get_by_role("button", name="Switch over to b").click()
    choose_yes(page, "Switch over")
    expect(dialog.locator(".result")).to_contain_text("b is the master, after")
    expect(dialog.locator(".steps li[data-outcome=done]")).to_have_count(2)
    expect(dialog.locator(".log")).to_contain_text(re.compile("a: RUNNING → "))
    choose_yes(page, "Close")
    expect(page.locator("[data-node=a] g.lit")).to_have_attribute("data-state", "WAITING")
    expect(page.locator("[data-node=b] g.lit")).to_have_attribute("data-state", "RUNNING")
    # Who only looked on at the other node saw it, too, without touching the page.
    expect(onlooker.locator("[data-node=b] g.lit")).to_have_attribute("data-state", "RUNNING")
    expect(onlooker.locator("[data-node=b] dl")).to_contain_text(str(term + 1))
    # And back, asked of the node that is to take over.
    until(lambda: nodes.a.caught_up_with(nodes.b))
    page.get_by_role("button", name="Switch over to a").click()
    choose_yes(page, "Switch over")
    expect(dialog.locator(".result")).to_contain_text("a is the master, after")
    choose_yes(page, "Close")
    expect(onlooker.locator("[data-node=a] g.lit")).to_have_attribute("data-state", "RUNNING")
    nodes.in_step()


def test_read_only_asks_for_the_name_and_promote_brings_back(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, CLUSTER)
    page.get_by_role("button", name="Make read-only").click()
    dialog = page.get_by_role("dialog")
    yes = dialog.get_by_role("button", name="Make read-only")
    expect(yes).to_be_disabled()
    dialog.get_by_role("textbox").fill("b")
    expect(yes).to_be_disabled()
    dialog.get_by_role("textbox").fill("a")
    yes.click()
    toast(page, "Read-only: WAITING")
    expect(page.locator("[data-node=a] .state")).to_have_text("WAITING")
    page.get_by_role("button", name="Promote").click()
    choose_yes(page, "Promote")
    toast(page, "Promoted: RUNNING")
    nodes.in_step()


# -- for everybody ---------------------------------------------------------------------------------


def check_access(page: Page) -> None:
    # The page's policy lets no script in but its own: axe is put in by the browser's debugger.
    found = Axe().run(page)
    assert found.response["passes"], "axe checked nothing"
    serious = [
        {"rule": one["id"], "at": [node["target"] for node in one["nodes"]][:3]}
        for one in found.response["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert not serious, json.dumps(serious, indent=1)


def test_light_and_dark_are_a_choice_that_stays(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, CLUSTER, color_scheme="light")
    back = "getComputedStyle(document.body).backgroundColor"
    expect(page.locator(".chart canvas")).to_have_count(2)
    light = page.evaluate(back)
    page.get_by_role("button", name="Change between light and dark").click()
    dark = page.evaluate(back)
    assert light != dark
    page.reload()
    assert page.evaluate(back) == dark


# -- who may ---------------------------------------------------------------------------------------


def test_a_node_with_a_token_asks_for_it(tmp_path: Path, open_page: Open) -> None:
    from tests.cluster.cluster_nodes import free_ports

    port, admin = free_ports(2)
    node = Member(tmp_path, "a", port, admin, [])
    node.env = {"ADMIN_TOKEN": TOKEN}
    config = tmp_path / "node.yaml"
    config.write_text("admin_token_env: ADMIN_TOKEN\n")
    node.start("--config", str(config))
    try:
        page = open_page(node, CLUSTER)
        page.get_by_label("Token").fill("something-else-entirely")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_have_text("This is not the node's token.")
        check_access(page)
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("[data-node=a] .state")).to_have_text("RUNNING")
        expect(page.locator("#live")).to_have_text("live")
        page.reload()
        expect(page.locator("[data-node=a] .state")).to_have_text("RUNNING")
        assert page.context.cookies() == []
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.reload()
        expect(page.get_by_label("Token")).to_be_visible()
    finally:
        node.end()


def test_a_node_that_went_away_is_told_and_found_again(tmp_path: Path, open_page: Open) -> None:
    from tests.cluster.cluster_nodes import free_ports

    port, admin = free_ports(2)
    node = Member(tmp_path, "a", port, admin, []).start()
    page = open_page(node, CLUSTER)
    expect(page.locator("#live")).to_have_text("live")
    node.end()
    expect(page.locator("#live")).to_have_text("no connection")
    # What is shown is old: it is grey, says so, and nothing of it can be pressed.
    gone = page.locator("#gone")
    expect(gone).to_contain_text(re.compile(r"does not answer since \d"))
    assert page.evaluate("document.getElementById('main').inert")
    assert "grayscale" in page.evaluate("getComputedStyle(document.getElementById('main')).filter")
    text = gone.inner_text()
    expect(gone).not_to_have_text(text)
    node.start()
    try:
        expect(page.locator("#live")).to_have_text("live")
        expect(page.locator("[data-node=a] .state")).to_have_text("RUNNING")
        expect(gone).to_be_hidden()
        assert not page.evaluate("document.getElementById('main').inert")
    finally:
        node.end()


def test_the_policy_lets_nothing_else_in(nodes: Pair, open_page: Open) -> None:
    page = open_page(nodes.a, CLUSTER)
    expect(page.locator("[data-node=a] .state")).to_have_text("RUNNING")
    answer = page.request.get(page.url)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = answer.text()
    assert not re.findall(r"<script(?![^>]*\bsrc=)|\son\w+=|style=|https?://", text)
    # A page of another site can neither read this one nor post to it.
    other = page.context.new_page()
    other.route("http://evil.example/", lambda route: route.fulfill(body="<p>evil</p>"))
    other.goto("http://evil.example/")
    refused = other.evaluate(
        """async (url) => {
            const body = JSON.stringify({read_only: true});
            const one = await fetch(url, {method: 'POST', mode: 'no-cors', body}).catch(() => null);
            const two = await fetch(url, {method: 'PUT', body}).catch(() => 'blocked');
            return [one && one.type, two];
        }""",
        f"http://127.0.0.1:{nodes.a.admin_port}/v1/read_only",
    )
    assert refused[1] == "blocked"
    assert nodes.a.status()["state"] == "RUNNING"
