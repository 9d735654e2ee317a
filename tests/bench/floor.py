# SPDX-License-Identifier: Apache-2.0
"""The least that any client needs: requests over plain HTTP/1.1, so many in flight, nothing else.

Run as `python tests/bench/floor.py KUBECONFIG WIDTH` by `ring.py`, as a process of its own. From
the standard input it takes a line with chains of requests, [path, document] one after the other
within a chain, opens its connections, says so, and begins at the next line. It answers with the
seconds that it took and with its own CPU seconds.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import yaml

JOBS = "/apis/kubeflow.org/v1/namespaces/{}/tfjobs"
PODS = "/api/v1/namespaces/{}/pods"
Chain = list[tuple[str, bytes]]


class Door:
    """One connection, on which a request leaves when the last one is answered."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str
    ) -> None:
        self._reader, self._writer, self._head = reader, writer, head

    async def post(self, path: str, body: bytes) -> bytes:
        """Return the answer to a document that is created."""
        line = f"POST {path}?fieldValidation=Ignore HTTP/1.1\r\n{self._head}"
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write((line + length).encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        text = await self._rest(answer.lower())
        if not answer.startswith(b"HTTP/1.1 201"):
            raise SystemExit(f"{path}: {answer.decode()}{text.decode()}")
        return text

    async def _rest(self, head: bytes) -> bytes:
        """Read what follows the head of an answer."""
        _, told, length = head.partition(b"\r\ncontent-length:")
        if told:
            return await self._reader.readexactly(int(length.partition(b"\r\n")[0]))
        parts = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readexactly(2)
        return b"".join(parts)


async def opened(config: Path, count: int) -> list[Door]:
    """Return so many connections to the server of a kubeconfig."""
    server, token, trust = credentials(config)
    url = urlsplit(server)
    head = f"Host: {url.netloc}\r\nUser-Agent: floor\r\nAuthorization: Bearer {token}\r\n"
    return [
        Door(
            *await asyncio.open_connection(url.hostname, url.port, ssl=trust, limit=2**20),
            head=head,
        )
        for _ in range(count)
    ]


async def talk(door: Door, chains: Iterator[Chain]) -> None:
    """Take chains until there are no more."""
    for chain in chains:
        for path, body in chain:
            await door.post(path, body)


def credentials(config: Path) -> tuple[str, str, ssl.SSLContext]:
    """Return server, token and trust out of a kubeconfig that has them within."""
    found = yaml.safe_load(config.read_text(encoding="utf-8"))
    cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
    data = cluster.get("certificate-authority-data")
    trust = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"),
        cadata=base64.b64decode(data).decode() if data else None,
    )
    return cluster["server"], user["token"], trust


async def main() -> None:
    """Do what the first line says when the second comes."""
    made = [
        [(path, json.dumps(document).encode()) for path, document in chain]
        for chain in json.loads(sys.stdin.readline())
    ]
    doors = await opened(Path(sys.argv[1]), int(sys.argv[2]))
    print("ready", flush=True)
    sys.stdin.readline()
    chains, started, cpu = iter(made), time.perf_counter(), time.process_time()
    await asyncio.gather(*(talk(door, chains) for door in doors))
    print(time.perf_counter() - started, time.process_time() - cpu, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
