"""Every view in four sizes, light and dark: nothing sticks out, and axe finds nothing."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.cluster.cluster_nodes import Pair
from tests.console.conftest import Open
from tests.console.test_console import CLUSTER, check_access, choose_yes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
#: A large screen, a small one, a tablet and a phone; axe looks at the small one and the phone.
SIZES = [(1920, 1080), (1280, 900), (820, 1180), (390, 844)]
VIEWS = ["", CLUSTER, "#/tubes", "#/tubes/jobs", "#/sessions"]
#: What a finger cannot hit.
TOO_SMALL = """() => [...document.querySelectorAll('nav a, header button, .card button')]
    .filter((e) => e.offsetParent && e.getBoundingClientRect().height < 24)
    .map((e) => e.textContent)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_it_fits_and_can_be_used_by_everybody(
    nodes: Pair, open_page: Open, view: str, scheme: str
) -> None:
    page = open_page(nodes.a, view, color_scheme=scheme)
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        expect(page.locator("tbody tr").first).to_be_visible()
        assert fits(page, width), (width, height)
        if width == 1280 or (width == 390 and scheme == "light"):
            check_access(page)
    assert not page.evaluate(TOO_SMALL)
    if view == CLUSTER:
        page.get_by_role("button", name="Switch over to b").click()
        check_access(page)
        assert fits(page, SIZES[-1][0])
        choose_yes(page, "Cancel")


def fits(page: Page, width: int) -> bool:
    return int(page.evaluate("document.documentElement.scrollWidth")) <= width
