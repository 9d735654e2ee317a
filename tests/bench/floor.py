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

Chain = list[tuple[str, bytes]]


async def talk(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str, chains: Iterator[Chain]
) -> None:
    """Take chains until there are no more; the next request leaves when the last is answered."""
    for chain in chains:
        for path, body in chain:
            writer.write(f"POST {path}{head}{len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            text = await rest(reader, answer.lower())
            if not answer.startswith(b"HTTP/1.1 201"):
                raise SystemExit(f"{path}: {answer.decode()}{text.decode()}")


async def rest(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """Read what follows the head of an answer."""
    _, told, length = head.partition(b"\r\ncontent-length:")
    if told:
        return await reader.readexactly(int(length.partition(b"\r\n")[0]))
    parts = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    return b"".join(parts)


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
    server, token, trust = credentials(Path(sys.argv[1]))
    url = urlsplit(server)
    head = (
        f"?fieldValidation=Ignore HTTP/1.1\r\nHost: {url.netloc}\r\nUser-Agent: floor\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: "
    )
    made = [
        [(path, json.dumps(document).encode()) for path, document in chain]
        for chain in json.loads(sys.stdin.readline())
    ]
    connections = [
        await asyncio.open_connection(url.hostname, url.port, ssl=trust, limit=2**20)
        for _ in range(int(sys.argv[2]))
    ]
    print("ready", flush=True)
    sys.stdin.readline()
    chains, started, cpu = iter(made), time.perf_counter(), time.process_time()
    await asyncio.gather(*(talk(*connection, head, chains) for connection in connections))
    print(time.perf_counter() - started, time.process_time() - cpu, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
