# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: the demo's story to its end, each view by eye, by keys and by ear.

With MUSTER_PICTURES the pictures of the documentation are made anew.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from muster.commands.snapshot import empty_store
from muster.dashboard import server as dashboard
from muster.dashboard.server import Dashboard, Source
from support.apiserver.stub import served
from support.builders import sample_clusters
from support.builders.sample_clusters import Server
from support.builders.scheduler import make_node
from support.e2e.gangs import wait_reason
from support.e2e.harness import Api, Operator, add_nodes, tfjob
from support.rehearsal.dashboard_source import EVENT, Hall

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 120.0


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Begin, with a listener that `run` is."""
        self._socket = socket
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.errors: list[str] = []
        """What the page complained about, and what its policy forbade."""

    async def run(self) -> None:
        """Take in what the browser says, until cancelled."""
        async for message in self._socket:
            said = json.loads(message.data)
            if (future := self._asked.pop(said.get("id", 0), None)) is not None:
                future.set_result(said)
            elif said.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(said["params"]["exceptionDetails"]))
            elif said.get("method") == "Log.entryAdded":
                self.errors.append(said["params"]["entry"]["text"])

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the answer of the browser. Raises AssertionError for an error."""
        number = next(self._numbers)
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            said = await future
        assert "error" not in said, said
        found: dict[str, Any] = said["result"]
        return found

    async def get(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        found = await self.ask("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, condition: str) -> None:
        """Return once a condition holds in the page, looked at with each of its pictures."""
        script = f"""new Promise((resolve, reject) => {{
            const began = performance.now(), most = {PATIENCE * 900};
            const look = () => {{
                if ({condition}) resolve(true);
                else if (performance.now() - began > most) reject(new Error("never"));
                else requestAnimationFrame(look);
            }};
            look();
        }})"""
        await self.get(script)

    async def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Be of that size and colour from now on."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.ask("Emulation.setEmulatedMedia", features=[scheme])

    async def press(self, key: str, code: int) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            await self.ask("Input.dispatchKeyEvent", type=kind, **named)

    async def names(self) -> dict[str, list[str]]:
        """Return what a screen reader finds, by role."""
        tree = await self.ask("Accessibility.getFullAXTree")
        found: dict[str, list[str]] = {}
        for node in tree["nodes"]:
            if not node.get("ignored"):
                name = node.get("name", {}).get("value", "")
                found.setdefault(node["role"]["value"], []).append(name)
        return found

    async def picture(self) -> bytes:
        """Return what is seen as a PNG, without the room below the page."""
        wide, high = await self.get(
            "[innerWidth, Math.min(innerHeight, document.body.offsetHeight)]"
        )
        clip = {"x": 0, "y": 0, "width": wide, "height": high, "scale": 1}
        found = await self.ask("Page.captureScreenshot", format="png", clip=clip)
        return base64.b64decode(found["data"])


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Page]:
    """Give a tab of a browser of its own, which keeps all it writes in that folder."""
    assert CHROMIUM is not None
    switches = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--no-first-run", "--disable-background-networking", "--remote-debugging-port=0",
                "--in-process-gpu", "--disable-extensions", "--disable-component-update",
                f"--user-data-dir={folder}")  # fmt: skip
    quiet = asyncio.subprocess.DEVNULL
    browser = await asyncio.create_subprocess_exec(
        CHROMIUM, *switches, "about:blank", stdout=quiet, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert browser.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while b"DevTools listening on" not in (line := await browser.stderr.readline()):
                assert line, "the browser has ended"
        port = line.decode().split(":")[2].split("/")[0]
        draining = asyncio.create_task(browser.stderr.read())
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                tabs = await answer.json()
            url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
            async with session.ws_connect(url, max_msg_size=0) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.run())
                for domain in ("Page", "Runtime", "Log", "Accessibility"):
                    await page.ask(f"{domain}.enable")
                yield page
                listening.cancel()
        draining.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            browser.kill()
        await browser.wait()


HOST = "muster.example.com"
OWN = frozenset({"host", "connection", "transfer-encoding", "content-length"})
"""Headers of one connection alone."""


@asynccontextmanager
async def before(target: str, path: str, token: str = "") -> AsyncIterator[str]:
    """Serve under `path` what is at `target`; give where.

    With a token it says who looks, as one does that has asked him; without one it passes on what
    he says.
    """
    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            headers = {k: v for k, v in request.headers.items() if k.lower() not in OWN}
            headers |= {"Host": HOST} | ({"Authorization": f"Bearer {token}"} if token else {})
            url = target + request.match_info["rest"]
            body = await request.read()
            async with session.request(
                request.method, url, params=request.query, headers=headers, data=body or None
            ) as answer:
                kept = {k: v for k, v in answer.headers.items() if k.lower() not in OWN}
                passed = web.StreamResponse(status=answer.status, headers=kept)
                await passed.prepare(request)
                async for piece in answer.content.iter_any():
                    await passed.write(piece)
                return passed

        async with served(pass_on, f"{path}{{rest:.*}}") as outside:
            yield outside + path


pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
]
DOCS = Path(__file__).parents[2] / "docs"
WIDE, NARROW = (1440, 860), (390, 844)
LLAMA = "JAXJob%2Flanguage%2Fllama-70b"
CHURN = "XGBoostJob/ranking/churn"
THERE = "typeof state === 'object' && state.version !== ''"
VIEWS = {
    "now": "document.querySelectorAll('#grid .node').length === 24",
    "waiting": "document.querySelectorAll('#waiting .gang').length === 5"
    " && document.querySelector('#waiting').innerText.includes('promised')",
    "queues": "document.querySelectorAll('#queues .queue').length === 3",
    "timeline": "document.querySelectorAll('#timeline .row').length === 11",
    f"job/{LLAMA}": "document.querySelector('#sheet[open]')?.textContent.includes('rack-b (7)')",
}
NOTHING_BESIDE = "document.documentElement.scrollWidth <= innerWidth && scrollY === 0"
STICKS_OUT = """[...document.querySelectorAll('body *')].filter((each) => {
  const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!own || !each.checkVisibility()) return false;
  const { display, overflowX } = getComputedStyle(each), views = each.closest('nav');
  const right = (element) => element.getBoundingClientRect().right;
  return views && right(each) > right(views) + 1
    || each.matches('td .chip') && each.getBoundingClientRect().height > 32
    || display !== 'inline' && overflowX === 'visible' && each.scrollWidth > each.clientWidth + 1;
}).map((each) => `${each.className}: ${each.textContent}`)"""
"""Gives the texts that do not fit where they stand, the views whose link cannot be seen, and the
words of tables that are broken."""
OVER_EACH_OTHER = """(() => {
  const found = [];
  for (let later = 0; later < 1800; later += 90) {
    state.skew = later;
    drawTimeline();
    const marks = [...document.querySelectorAll('.axis span')];
    const boxes = marks.map((mark) => mark.getBoundingClientRect()).sort((a, b) => a.x - b.x);
    if (boxes.some((box, i) => i && boxes[i - 1].right > box.left)) found.push(later);
  }
  state.skew = 0;
  return found;
})()"""
"""Gives when, in the next half hour, times of the timeline would be written over each other."""
FAINT = """((dark) => {
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).map(Number).slice(0, 3).map((value) => value / 255);
    const [r, g, b] = parts.map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = (element) => {
    const colour = element ? getComputedStyle(element).backgroundColor : 'rgb(255, 255, 255)';
    return colour.endsWith(', 0)') ? behind(element.parentElement) : light(colour);
  };
  const found = dark === behind(document.body) < .1 ? [] : ['the page'];
  for (const each of document.querySelectorAll('body *')) {
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !each.checkVisibility()) continue;
    const [more, less] = [light(getComputedStyle(each).color), behind(each)].sort((a, b) => b - a);
    if ((more + .05) / (less + .05) < 4.5) found.push(`${each.className}: ${each.textContent}`);
  }
  return found;
})"""
"""Gives the texts that stand out less from what is behind them than WCAG asks for, and `the page`
if that is light where it is to be dark."""
SPOKEN = ("button", "link", "image", "textbox", "searchbox", "dialog", "group", "table")
Story = Callable[[Page], Awaitable[None]]


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Story], None]]:
    """Give what plays a story in the browser, one for all, that nothing may complain in."""
    with asyncio.Runner() as runner:
        opening = opened(tmp_path_factory.mktemp("profile"))
        page = runner.run(opening.__aenter__())

        def play(story: Story) -> None:
            # A story before, if it failed, has left a page that others' ends may break.
            runner.run(page.ask("Page.navigate", url="about:blank"))
            page.errors.clear()
            runner.run(story(page))
            assert page.errors == []

        yield play
        runner.run(opening.__aexit__(None, None, None))


@asynccontextmanager
async def shown(
    page: Page,
    seen: list[sample_clusters.Seen],
    server: Server | None = None,
    source: Source | None = None,
) -> AsyncIterator[str]:
    """Serve the last of what is seen, or a source of one's own; give where."""
    store = empty_store(("muster",))
    source = source or Source(lambda: seen[-1], store)
    runner = await dashboard.serve("127.0.0.1:0", Dashboard(source, server))
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await page.ask("Page.navigate", url="about:blank")
        await runner.cleanup()


async def log_in(page: Page, token: str) -> None:
    """Say who one is, as one is asked to."""
    await page.until("document.querySelector('#login[open]') !== null")
    assert all("401" in error for error in page.errors), page.errors
    page.errors.clear()
    await page.get(f"document.getElementById('token').value = '{token}'")
    await page.get("document.querySelector('#login button').click()")


def test_the_demos_story_is_watched_to_its_end(
    api: Api, operator: Operator, watch: Callable[[Story], None], tmp_path: Path
) -> None:
    """On the operator's page: a job waits behind another, starts as that ends, and succeeds."""
    config = yaml.safe_load(api.cluster.kubeconfig.read_text())
    token = config["users"][0]["user"]["token"]
    add_nodes(api, *[{"nvidia.com/gpu": "4"}] * 4)
    for name, workers, gpus in (("first", 3, "4"), ("second", 4, "2")):
        api.create(tfjob(name, workers=workers, resources={"nvidia.com/gpu": gpus}, run="forever"))
        if name == "first":
            api.wait_pods(3, "Running", "first")
    wait_reason(api, "second", "NotEnoughResources")
    second = f"TFJob/{api.namespace}/second"
    sheet = "document.querySelector('#sheet[open]')?.innerText"

    async def ends(job: str) -> None:
        for pod in await asyncio.to_thread(api.pods, job):
            await asyncio.to_thread(api.finish, pod["metadata"]["name"])

    async def story(page: Page) -> None:
        await page.look(*WIDE)
        await page.ask("Page.navigate", url=f"http://127.0.0.1:{operator.page}/#/waiting")
        await log_in(page, token)
        card = f"document.querySelector('[data-gang=\"{second}\"]')"
        await page.until(f"{card}?.innerText.includes('0/4 placed')")
        assert "first" in await page.get(f"{card}.innerText")
        # By the rights of who looks, whose token the operator passes on.
        await page.get(f"{card}.querySelector('button').click()")
        await page.until(f"{sheet}?.includes('TFJobCreated')")
        await ends("first")
        await page.until(f"{sheet}.includes('second-worker-3') && {sheet}.includes('Running')")
        await asyncio.to_thread(api.wait_pods, 4, "Running", "second")
        held = f"(node) => node.held.some((row) => row[0] === '{second}')"
        await page.until(f"Object.values(state.view.nodes).some({held})")
        await ends("second")
        await page.until("document.querySelector('#sheet .chip').innerText === 'Succeeded'")
        await each_look(page, "sheet", tmp_path)
        await page.get("location.hash = '/timeline'")
        await page.get("document.querySelector('[data-spot=\"by node\"]').click()")
        lanes = "[...document.querySelectorAll('.devices')].map((lane) => lane.ariaLabel)"
        # Two of them share a node if only two were free when they were placed.
        told = "/: 4 first from .* to .*[24] second from .* to /s"
        await page.until(f"{told}.test({lanes}.join())")
        await page.ask("Page.navigate", url="about:blank")

    watch(story)


@pytest.mark.full
def test_each_view_is_read_by_everybody(watch: Callable[[Story], None], tmp_path: Path) -> None:
    """At two widths, in two colours; all that a picture says has words."""
    seen = [sample_clusters.small(time.time())[1]]

    async def story(page: Page) -> None:
        async with shown(page, seen) as base:
            await page.look(*WIDE)
            await page.ask("Page.navigate", url=base)
            await page.until(THERE)
            for view, there in VIEWS.items():
                await page.get(f"location.hash = '/{view}'")
                await page.until(there)
                await each_look(page, view, tmp_path)
            await promised(page)
            await by_keys(page)
            await live(page, seen)
            await young(page, seen)
            await many(page)

    watch(story)
    if os.environ.get("MUSTER_PICTURES"):
        for view, kept in (("now", "dashboard"), ("waiting", "dashboard-waiting")):
            (DOCS / f"{kept}.png").write_bytes((tmp_path / f"{view}.png").read_bytes())


async def each_look(page: Page, view: str, folder: Path) -> None:
    """Look at a view in each size and colour, and listen to it."""
    for dark in (True, False):
        await page.look(*WIDE, dark=dark)
        assert await page.get(f"{FAINT}({str(dark).lower()})") == [], (view, dark)
    for size in (NARROW, WIDE):
        await page.look(*size)
        await page.until(NOTHING_BESIDE)
        assert await page.get(STICKS_OUT) == [], (view, size)
        if view == "timeline":
            assert await page.get(OVER_EACH_OTHER) == [], size
    if os.environ.get("MUSTER_PICTURES"):
        seen = await page.picture()
        (folder / f"{view.partition('/')[0]}.png").write_bytes(seen)
    told = await page.names()
    nameless = [role for role in SPOKEN if not all(told.get(role, ()))]
    assert nameless == [], view
    words = {name for names in told.values() for name in names}
    for needed in HEARD.get(view, ()):
        assert any(name.startswith(needed) for name in words), (view, needed)


HEARD = {
    "now": ("Views", "gpu-a-7: 8 GPU, held: 4 weather, 1 other pods; 3 free",
            "gpu-c-8: 8 GPU, 8 free; not usable"),
    "waiting": ("Position 1 in queue research",),
    "queues": ("research holds 104 of 92 GPU due",),
    "timeline": ("llama-70b: Running, began ",),
}  # fmt: skip
"""View -> what a screen reader says of it, among other things."""


async def promised(page: Page) -> None:
    """See by node where a gang starts that has a reservation, behind who runs there."""
    await page.get("location.hash = '/timeline'")
    await page.until(VIEWS["timeline"])
    await page.get("document.querySelector('[data-spot=\"by node\"]').click()")
    lanes = "[...document.querySelectorAll('.devices')].map((lane) => lane.ariaLabel)"
    await page.until(
        f"{lanes}.filter((told) => /8 rlhf-round-3 from about/.test(told)).length === 8"
    )
    await page.get("document.querySelector('[data-spot=\"by job\"]').click()")
    await page.get("location.hash = '/job/PyTorchJob%2Flanguage%2Frlhf-round-3'")
    await page.until("document.querySelector('#sheet[open]')?.innerText.includes('Kept for it')")
    await page.get("location.hash = '/now'")


async def by_keys(page: Page) -> None:
    """From node to node by arrows, into a job by Enter, back by Escape."""
    await page.get("location.hash = '/now'")
    await page.until("!document.getElementById('sheet').open")
    await page.get("document.querySelector('#grid [tabindex=\"0\"]').focus()")
    await page.press("ArrowRight", 39)
    await page.press("ArrowDown", 40)
    await page.press("ArrowUp", 38)
    assert await page.get("document.activeElement.dataset.node") == "gpu-a-2"
    assert await page.get("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tip = await page.get("document.getElementById('tip').innerText")
    assert "vit-pretrain-worker-8-15" in tip
    assert "since" in tip
    await page.ask("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r",
                   windowsVirtualKeyCode=13)  # fmt: skip
    await page.until("document.querySelector('#sheet[open] h2')?.textContent.includes('vit-pre')")
    await page.press("Escape", 27)
    await page.until("!document.getElementById('sheet').open && location.hash === '#/now'")


async def live(page: Page, seen: list[sample_clusters.Seen]) -> None:
    """See a gang go, without another look; the mouse finds whose each cell is."""
    where = "document.querySelector('[data-node=gpu-c-4] i').getBoundingClientRect()"
    box = await page.get(f"(({{x, y, width, height}}) => [x, y, width, height])({where})")
    at = {"x": box[0] + box[2] * 4.5 / 8, "y": box[1] + box[3] / 2}
    await page.ask("Input.dispatchMouseEvent", type="mouseMoved", **at)
    await page.until(
        "document.querySelector('#tip .here')?.innerText.includes('churn-worker-0-1')"
    )
    seen.append(sample_clusters.without(seen[-1], CHURN))
    await page.until("!document.getElementById('legend').innerText.includes('churn')")
    label = await page.get("document.querySelector('[data-node=gpu-c-4]').ariaLabel")
    assert "churn" not in label
    await page.until("document.getElementById('pulse').innerText === 'live'")


async def young(page: Page, seen: list[sample_clusters.Seen]) -> None:
    """See of jobs that have just come more than a line: the time before them is left out."""
    whole, now = seen[-1], time.time()
    nodes = [make_node(name="gpu-a-1", gpu=8)]
    first = sample_clusters.running(
        "TFJob/vision/first", ["gpu-a-1"], 8, 1, now, queue="default", ran=10
    )
    seen.append(sample_clusters.saw(nodes, [first], now=now)[1])
    await page.get("location.hash = '/timeline'")
    await page.until("document.querySelectorAll('#timeline .row').length === 1")
    wide = "getBoundingClientRect().width"
    bar, lane = (f"document.querySelector('.lane{of}').{wide}" for of in (" i:not(.wait)", ""))
    assert await page.get(f"{bar} / {lane}") > 0.05
    seen.append(whole)
    await page.until("Object.keys(state.view.nodes).length === 24")
    await page.get("location.hash = '/now'")


async def many(page: Page) -> None:
    """Of thousands of nodes those on the screen come first, and the last by one key."""
    await page.get("""window.requestIdleCallback = () => {};
        for (let i = 0; i < 2400; i += 1) state.view.nodes[`z-${i}`] = state.view.nodes['gpu-a-1'];
        drawNow()""")
    count = "document.querySelectorAll('#grid .node').length"
    assert 1000 < await page.get(count) < 2400
    await page.get("document.querySelector('#grid [tabindex=\"0\"]').focus()")
    await page.press("End", 35)
    assert await page.get("document.activeElement.dataset.node") == "z-2399"
    assert await page.get(count) == 2424
    assert "vit-pretrain" in await page.get("document.activeElement.ariaLabel")


def test_a_tenant_logs_in(watch: Callable[[Story], None], tmp_path: Path) -> None:
    """Where it is asked who one is; he sees his own jobs, and others without names."""

    async def story(page: Page) -> None:
        seen = [sample_clusters.small(time.time())[1]]
        async with shown(page, seen, Server(good={"vision"})) as base:
            await page.ask("Page.navigate", url=f"{base}#/waiting")
            await log_in(page, "good")
            await page.until("document.querySelectorAll('#waiting .stranger').length === 4")
            told = await page.get("document.body.innerText")
            assert "sam-distill" in told
            assert "llama" not in told
            await each_look(page, "tenant", tmp_path)

    watch(story)


@pytest.mark.full
@pytest.mark.parametrize("knows", [False, True], ids=["passed on", "by the proxy"])
def test_it_is_watched_through_a_proxy(watch: Callable[[Story], None], knows: bool) -> None:
    """Under a path of another host, live, by the token that one types or that the proxy brings."""
    token = "good" if knows else ""

    async def story(page: Page) -> None:
        seen = [sample_clusters.small(time.time())[1]]
        server = Server(good={"ranking"})

        async with (
            shown(page, seen, server) as base,
            before(base, "/gpus/of/all/", token) as outside,
        ):
            await page.ask("Page.navigate", url=outside)
            if not knows:
                await log_in(page, "good")
            await page.until("document.getElementById('legend')?.innerText.includes('churn')")
            await page.until("document.getElementById('pulse').innerText === 'live'")
            seen.append(sample_clusters.without(seen[-1], CHURN))
            await page.until("!document.getElementById('legend').innerText.includes('churn')")
            await page.ask("Page.navigate", url="about:blank")

    watch(story)


@pytest.mark.full
def test_a_log_is_read(watch: Callable[[Story], None], tmp_path: Path) -> None:
    """From a job to its pod to what that printed, and its events; with the token of who looks."""
    asked: list[str] = []

    async def read(who: str, path: str, _: Mapping[str, str]) -> str:
        asked.append(who)
        return "step 1\n" if path.endswith("/log") else json.dumps({"items": [EVENT]})

    hall = Hall(sample_clusters.small(time.time())[1], read=read)
    hall.brings()

    async def story(page: Page) -> None:
        server = Server(good={"vision"})
        async with shown(page, [], server, hall.source) as base:
            await page.ask("Page.navigate", url=f"{base}#/job/TFJob%2Fvision%2Fmine")
            await log_in(page, "good")
            pod, log = (f"document.querySelector('#sheet {of}')" for of in ("td button", ".log"))
            await page.until(f"{pod} !== null")
            await page.get(f"{pod}.click()")
            await page.until(f"{log}?.innerText.trim() === 'step 1'")
            sheet = await page.get("document.getElementById('sheet').innerText")
            assert "EVENTS OF MINE-WORKER-0" in sheet
            assert sheet.count("waits") == 2
            assert set(asked) == {"Bearer good"}
            await each_look(page, "log", tmp_path)

    watch(story)
