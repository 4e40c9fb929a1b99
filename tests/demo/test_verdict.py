"""The demonstration's verdict, shown by planting every kind of violation in clean logs.

Here: the pure judge only. Must not be here: servers, sockets, time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from demo.history import Hold, Outcome, Put
from demo.verdict import Verdict, judge

HOSTS = ("a.org", "b.org", "c.org")


def clean(urls: int = 12) -> tuple[list[Put], list[Hold]]:
    """Logs of a run without fault: three hosts in turn, each hold 10 ns long, none overlapping."""
    puts, holds = [], []
    for n in range(urls):
        host = HOSTS[n % len(HOSTS)]
        url = f"https://{host}/{n}"
        puts.append(Put(n, url, host, Outcome.OK, n))
        holds.append(Hold(url, host, n, n % 4, 100 * n, 100 * n + 10, Outcome.OK))
    return puts, holds


def wrong(verdict: Verdict) -> set[str]:
    """Names of the lists that are not empty."""
    names = ("refused", "lost", "twice", "strangers", "together", "disorder")
    return {name for name in names if getattr(verdict, name)}


def test_clean_run_is_ok() -> None:
    verdict = judge(*clean())
    assert verdict.ok
    assert verdict.last_line() == "verdict: ok"
    assert (verdict.urls, verdict.hosts, verdict.once) == (12, 3, 12)
    assert wrong(verdict) == set()


def test_logs_may_come_in_any_order() -> None:
    puts, holds = clean()
    assert judge(puts[::-1], holds[::-1]).ok


def test_nothing_put_is_no_success() -> None:
    assert judge([], []).last_line() == "verdict: FAILED: no URL was put"


def test_accepted_and_never_handed_out_is_lost() -> None:
    puts, holds = clean()
    gone = holds.pop(5)
    verdict = judge(puts, holds)
    assert verdict.lost == [gone.url]
    assert wrong(verdict) == {"lost"}
    assert verdict.once == 11
    assert verdict.last_line() == f"verdict: FAILED: 1 lost ({gone.url})"


def test_handed_out_and_never_acknowledged_is_lost() -> None:
    puts, holds = clean()
    holds[5] = replace(holds[5], outcome=Outcome.FAILED)
    assert wrong(judge(puts, holds)) == {"lost"}


def test_unknown_ack_is_not_lost() -> None:
    puts, holds = clean()
    holds[5] = replace(holds[5], outcome=Outcome.UNKNOWN)
    verdict = judge(puts, holds)
    assert verdict.ok
    assert verdict.unknown_acks == 1


def test_two_acks_of_one_url_are_twice() -> None:
    puts, holds = clean()
    holds.append(replace(holds[-1], taken_ns=9_000, ended_ns=9_010))
    verdict = judge(puts, holds)
    assert verdict.twice == [holds[-1].url]
    assert wrong(verdict) == {"twice"}


def test_handed_out_again_after_its_ack_is_twice_even_if_the_second_ack_fails() -> None:
    puts, holds = clean()
    holds.append(replace(holds[-1], taken_ns=9_000, ended_ns=9_010, outcome=Outcome.FAILED))
    assert wrong(judge(puts, holds)) == {"twice"}
    assert wrong(judge(puts, holds, interrupted=True)) == {"twice"}


def test_redelivery_after_an_interrupted_ack_is_lawful() -> None:
    for outcome in (Outcome.FAILED, Outcome.UNKNOWN):
        puts, holds = clean()
        first = replace(holds[-1], outcome=outcome)
        second = replace(holds[-1], taken_ns=9_000, ended_ns=9_010)
        verdict = judge(puts, [*holds[:-1], first, second], interrupted=True)
        assert verdict.ok
        assert verdict.redelivered == 1


def test_redelivery_without_any_interruption_is_twice() -> None:
    puts, holds = clean()
    first = replace(holds[-1], outcome=Outcome.FAILED)
    second = replace(holds[-1], taken_ns=9_000, ended_ns=9_010)
    assert wrong(judge(puts, [*holds[:-1], first, second])) == {"twice"}


def test_two_of_one_host_at_a_time() -> None:
    puts, holds = clean()
    earlier, later = holds[0], holds[3]
    assert earlier.host == later.host
    holds[0] = replace(earlier, ended_ns=later.taken_ns + 1)
    verdict = judge(puts, holds)
    assert verdict.together == [f"{earlier.url} and {later.url}"]
    assert wrong(verdict) == {"together"}


def test_a_long_hold_is_compared_with_more_than_its_neighbour() -> None:
    puts, holds = clean()
    holds[0] = replace(holds[0], ended_ns=holds[6].taken_ns + 1)
    assert len(judge(puts, holds).together) == 2


def test_back_to_back_holds_and_other_hosts_do_not_overlap() -> None:
    puts, holds = clean()
    holds[0] = replace(holds[0], ended_ns=holds[3].taken_ns)
    assert judge(puts, holds).ok


def test_handed_out_of_order() -> None:
    puts, holds = clean()
    a, b = holds[0], holds[3]
    holds[0] = replace(a, taken_ns=b.taken_ns, ended_ns=b.ended_ns)
    holds[3] = replace(b, taken_ns=a.taken_ns, ended_ns=a.ended_ns)
    verdict = judge(puts, holds)
    assert verdict.disorder == [a.url]
    assert wrong(verdict) == {"disorder"}
    assert ("order kept per host", "no, broken 1 times") in verdict.lines()


def test_ids_that_fall_while_putting() -> None:
    puts, holds = clean()
    puts[0], puts[3] = replace(puts[0], task_id=3), replace(puts[3], task_id=0)
    holds[0], holds[3] = replace(holds[0], task_id=3), replace(holds[3], task_id=0)
    assert wrong(judge(puts, holds)) == {"disorder"}


def test_one_id_given_to_two_urls_of_a_host() -> None:
    puts, holds = clean()
    puts[3] = replace(puts[3], task_id=0)
    holds[3] = replace(holds[3], task_id=0)
    assert wrong(judge(puts, holds)) == {"disorder"}


def test_a_url_nobody_put() -> None:
    puts, holds = clean()
    holds.append(Hold("https://d.org/", "d.org", 99, 0, 9_000, 9_010, Outcome.OK))
    verdict = judge(puts, holds)
    assert verdict.strangers == ["https://d.org/"]
    assert wrong(verdict) == {"strangers"}


def test_a_url_whose_put_was_refused_must_not_come() -> None:
    puts, holds = clean()
    puts[-1] = replace(puts[-1], outcome=Outcome.FAILED, task_id=None)
    assert wrong(judge(puts, holds)) >= {"strangers"}


def test_a_task_under_another_id() -> None:
    puts, holds = clean()
    holds[-1] = replace(holds[-1], task_id=77)
    assert judge(puts, holds).strangers == [f"{holds[-1].url} as task 77"]


def test_a_refused_put_is_named() -> None:
    puts, holds = clean()
    puts[-1] = replace(puts[-1], outcome=Outcome.FAILED, task_id=None)
    verdict = judge(puts, holds[:-1])
    assert verdict.refused == [puts[-1].url]
    assert wrong(verdict) == {"refused"}


def test_a_put_with_unknown_outcome_may_be_there_or_not() -> None:
    puts, holds = clean()
    puts[-1] = replace(puts[-1], outcome=Outcome.UNKNOWN, task_id=None)
    assert judge(puts, holds).ok
    assert judge(puts, holds[:-1]).ok


def test_a_retried_put_may_be_processed_as_often_as_it_was_tried() -> None:
    puts, holds = clean()
    retry = replace(puts[-1], position=50, task_id=50)
    puts[-1] = replace(puts[-1], outcome=Outcome.UNKNOWN, task_id=None)
    again = replace(holds[-1], task_id=50, taken_ns=9_000, ended_ns=9_010)
    assert judge([*puts, retry], holds).ok
    assert judge([*puts, retry], [*holds, again]).ok
    thrice = replace(again, taken_ns=9_500, ended_ns=9_510)
    assert wrong(judge([*puts, retry], [*holds, again, thrice])) == {"twice"}


def test_tasks_the_server_still_counts() -> None:
    puts, holds = clean()
    verdict = judge(puts, holds, left_in_tube=2)
    assert verdict.last_line() == "verdict: FAILED: 2 left in the tube"


def test_many_examples_are_cut() -> None:
    puts, _ = clean()
    verdict = judge(puts, [])
    assert len(verdict.lost) == 12
    assert verdict.reasons[0].startswith("12 lost (")
    assert verdict.reasons[0].endswith(", ...)")


@pytest.mark.parametrize("label", ["URLs", "hosts", "processed once", "lost", "twice"])
def test_lines_carry_the_figures(label: str) -> None:
    assert label in dict(judge(*clean()).lines())


def test_a_task_in_two_hands_is_doubly_held() -> None:
    puts, holds = clean()
    holds.append(replace(holds[4], worker=9, taken_ns=405, ended_ns=450))
    verdict = judge(puts, holds, interrupted=True)
    assert verdict.doubly == ["https://b.org/4 as task 4"]
    assert "1 doubly held" in verdict.last_line()


def test_a_task_handed_out_again_after_it_was_given_up_is_not_doubly_held() -> None:
    puts, holds = clean()
    holds[4] = replace(holds[4], outcome=Outcome.UNKNOWN)
    holds.append(replace(holds[4], worker=9, taken_ns=410, ended_ns=450, outcome=Outcome.OK))
    verdict = judge(puts, holds, interrupted=True)
    assert verdict.doubly == []
    assert verdict.ok
