"""What all tests share: the seed of randomized ones, and how hard Hypothesis looks.

`--seed N` replays; profiles: dev (default), ci, deep (`HYPOTHESIS_PROFILE=deep`).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# What an outer make tells its commands is not meant for those that tests run: a make among them
# would print where it is, or take over the outer one's ARGS.
for _name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "GNUMAKEFLAGS", "MAKEOVERRIDES", "ARGS"):
    os.environ.pop(_name, None)

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
#: Under which a report carries what `tell` was told.
TOLD = "told"
settings.register_profile(
    "dev", max_examples=50, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile(
    "ci", max_examples=100, deadline=None, print_blob=True, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile(
    "deep", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=_SLOW_IS_FINE
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") == "true" else "dev")
)


#: How much is said of all failures before their tracebacks, in characters, and of each in lines.
IN_SHORT = 6000
LINES_IN_SHORT = 70


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="seed of randomized tests, to replay")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.shares import Shares

    return Shares(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        from tests.shares import rank

        items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Who leaves a loop running fails, not the hundreds behind it that cannot run one."""
    result = yield
    # Playwright's runs while the browser of a module is open.
    if asyncio._get_running_loop() is not None and not item.nodeid.startswith("tests/console/"):
        asyncio._set_running_loop(None)
        pytest.fail("a loop is left running", pytrace=False)
    return result


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """`tell(text)`: a figure whoever ran the tests wants to see, shown at their end."""
    return lambda text: record_property(TOLD, text)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """One seed for this test; printed, so that a failure shows how to run it again."""
    given = request.config.getoption("--seed")
    chosen = random.SystemRandom().randrange(1 << 32) if given is None else int(given)
    print(f"replay: pytest '{request.node.nodeid}' --seed {chosen}")
    return chosen


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """local[2] with both formats registered, started once."""
    from tandemq.pipeline.session import build_session

    home = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("TANDEM_SPARK_QUICK", "1")
    session = build_session("local[2]", "tests", home=home, shuffle_partitions=2)
    yield session
    session.stop()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Figures tests told. Why some failed, in short and before all tracebacks: a CI may cut these
    off anywhere.
    """
    figures(terminalreporter)
    reports = [*terminalreporter.getreports("error"), *terminalreporter.getreports("failed")]
    if reports and not sys.stdout.isatty():
        terminalreporter.section("WHY, IN SHORT")
        for report in reports:
            terminalreporter.write_line(in_short(report, IN_SHORT // len(reports)))
    return (yield)


def figures(terminalreporter: pytest.TerminalReporter) -> None:
    ended = [one for kind in ("passed", "failed") for one in terminalreporter.getreports(kind)]
    lines = [text for one in ended for name, text in one.user_properties if name == TOLD]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(str(line))


def in_short(report: pytest.TestReport | pytest.CollectReport, most: int) -> str:
    """The error and, of a Hypothesis test, its falsifying example: the end of it if it is long."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"
    lines = [line[:160] for line in text.splitlines()]
    if crash is None or len(lines) > LINES_IN_SHORT:
        lines = [*lines[:5], "...", *lines[5:][5 - LINES_IN_SHORT :]]
    text = "\n    ".join(lines)
    if len(text) > most:
        text = f"{text[: most // 4]}\n    ...\n{text[-most * 3 // 4 :]}"
    return f"{report.nodeid}\n    {text}"
