# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: each view, wide and narrow, light and dark, by mouse and by keys.

With MUSTER_PICTURES the pictures of the documentation are made anew.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import browser
import pytest

import halls
from halls import Server
from muster.commands.snapshot import empty_store
from muster.dashboard import server as dashboard
from muster.dashboard.server import Dashboard, Guard, Source
from muster.scheduler import policy

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(browser.CHROMIUM is None, reason="there is no chromium on this machine"),
]
DOCS = Path(__file__).parents[2] / "docs"
WIDE, NARROW = (1440, 860), (390, 844)
LLAMA = "JAXJob%2Flanguage%2Fllama-70b"
CHURN = "XGBoostJob/ranking/churn"
READ = {
    "now": "document.querySelectorAll('#grid .node').length === 24",
    "waiting": "document.querySelectorAll('#waiting .gang').length === 5"
    " && document.querySelector('#waiting').innerText.includes('if nothing else comes')",
    "queues": "document.querySelectorAll('#queues .queue').length === 3",
    "timeline": "document.querySelectorAll('#timeline .row').length === 11",
}
NOTHING_BESIDE = "document.documentElement.scrollWidth <= innerWidth"


async def watched(folder: Path) -> None:
    """Go through the page as somebody who looks at it for the first time."""
    _, seen = halls.small(time.time())
    now = [seen]
    source = Source(lambda: now[0], lambda: policy.DEFAULT, empty_store(("muster",)))
    runner = await dashboard.serve("127.0.0.1:0", Dashboard(source))
    base = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        async with browser.opened(folder / "profile") as page:
            for size in (WIDE, NARROW):
                for dark in (False, True):
                    await each_view(page, base, size, folder, dark=dark)
            await page.look(*WIDE)
            await by_keys(page, base)
            await by_ear(page, base)
            await live(page, base, now)
            assert page.errors == []
            await log_in(page, source)
    finally:
        await runner.cleanup()


async def each_view(
    page: browser.Page, base: str, size: tuple[int, int], folder: Path, *, dark: bool
) -> None:
    """Look at every view, and at one job."""
    await page.look(*size, dark=dark)
    await page.ask("Page.navigate", url=base)
    for view, there in READ.items():
        await page.until("typeof state === 'object' && state.version !== ''")
        await page.get(f"location.hash = '/{view}'")
        await page.until(f"!document.getElementById('{view}').hidden && {there}")
        assert await page.get(f"{NOTHING_BESIDE} && scrollY === 0"), (view, size)
        await picture(page, folder / f"{view}-{size[0]}{'-dark' if dark else ''}.png")
    await page.get(f"location.hash = '/job/{LLAMA}'")
    await page.until("document.querySelector('#sheet[open]')?.textContent.includes('rack-b (7)')")
    assert await page.get(NOTHING_BESIDE), size
    await picture(page, folder / f"job-{size[0]}{'-dark' if dark else ''}.png")


async def picture(page: browser.Page, file: Path) -> None:
    """Keep what is seen, which is more than one colour."""
    seen = await page.picture()
    assert len(seen) > 10_000
    await asyncio.to_thread(file.write_bytes, seen)


async def by_keys(page: browser.Page, base: str) -> None:
    """From node to node by arrows, into a job by Enter, back by Escape."""
    await page.ask("Page.navigate", url=f"{base}?keys#/now")
    await page.until("typeof state === 'object' && " + READ["now"])
    await page.get("document.querySelector('#grid [tabindex=\"0\"]').focus()")
    await page.press("ArrowRight", 39)
    await page.press("ArrowDown", 40)
    await page.press("ArrowUp", 38)
    assert await page.get("document.activeElement.dataset.node") == "gpu-a-2"
    tip = await page.get("document.getElementById('tip').innerText")
    assert "vit-pretrain-worker-8-15" in tip
    assert "since" in tip
    await page.ask("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r",
                   windowsVirtualKeyCode=13)  # fmt: skip
    await page.until("document.querySelector('#sheet[open] h2')?.textContent.includes('vit-pre')")
    await page.press("Escape", 27)
    await page.until("!document.getElementById('sheet').open && location.hash === '#/now'")


async def by_ear(page: browser.Page, base: str) -> None:
    """Everything that a picture says has words."""
    await page.ask("Page.navigate", url=f"{base}?ear#/now")
    await page.until("typeof state === 'object' && " + READ["now"])
    found = await page.names()
    nodes = [name for name in found["button"] if name.startswith("gpu-")]
    assert len(nodes) == 24
    assert "gpu-a-7: 8 GPU, held: 4 weather, 1 other pods; 3 free" in nodes
    assert "gpu-c-8: 8 GPU, 8 free; not usable" in nodes
    assert all(found["button"])
    assert all(found["link"])
    assert "Views" in found["navigation"]
    await page.get("location.hash = '/queues'")
    await page.until(READ["queues"])
    told = await page.names()
    assert any(name.startswith("research holds 104 of 92 GPU due") for name in told["image"])


async def log_in(page: browser.Page, source: Source) -> None:
    """Say who one is where that is asked; see one's own jobs, and others without names."""
    guard = Guard(Server(good={"vision"}))
    runner = await dashboard.serve("127.0.0.1:0", Dashboard(source, guard))
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/#/waiting"
        await page.ask("Page.navigate", url=url)
        await page.until("document.querySelector('#login[open]') !== null")
        await page.get("document.getElementById('token').value = 'good'")
        await page.get("document.querySelector('#login button').click()")
        await page.until("document.querySelectorAll('#waiting .stranger').length === 4")
        told = await page.get("document.body.innerText")
        assert "sam-distill" in told
        assert "llama" not in told
    finally:
        await runner.cleanup()


async def live(page: browser.Page, base: str, now: list[halls.Seen]) -> None:
    """See a gang go, without another look; the mouse finds whose each cell is."""
    await page.ask("Page.navigate", url=f"{base}?live#/now")
    await page.until("typeof state === 'object' && " + READ["now"])
    where = "document.querySelector('[data-node=gpu-c-4] i').getBoundingClientRect()"
    box = await page.get(f"(({{x, y, width, height}}) => [x, y, width, height])({where})")
    at = {"x": box[0] + box[2] * 4.5 / 8, "y": box[1] + box[3] / 2}
    await page.ask("Input.dispatchMouseEvent", type="mouseMoved", **at)
    await page.until(
        "document.querySelector('#tip .here')?.innerText.includes('churn-worker-0-1')"
    )
    now[0] = halls.without(now[0], CHURN)
    await page.until("!document.getElementById('legend').innerText.includes('churn')")
    label = await page.get("document.querySelector('[data-node=gpu-c-4]').ariaLabel")
    assert "churn" not in label
    await page.until("document.getElementById('pulse').innerText === 'live'")


def test_the_page_is_read_by_everybody(tmp_path: Path) -> None:
    """Each view, at two widths, in two colours; by keys, by ear, and live."""
    asyncio.run(watched(tmp_path))
    if os.environ.get("MUSTER_PICTURES"):
        for made, kept in (("now-1440", "dashboard"), ("waiting-1440", "dashboard-waiting")):
            (DOCS / f"{kept}.png").write_bytes((tmp_path / f"{made}.png").read_bytes())
