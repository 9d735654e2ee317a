# SPDX-License-Identifier: Apache-2.0
"""Chromium as the tests drive it: its own protocol for developers, over a web socket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

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
