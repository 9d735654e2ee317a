# SPDX-License-Identifier: Apache-2.0
"""A registry of images on loopback, in memory: as much of OCI's distribution as pushing takes."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

EMPTY = b"{}"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Registry:
    """What was pushed: by digest, and by the names it was given."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.address = ""
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        """Repository and tag or digest -> media type and bytes."""
        self._uploads: dict[str, bytearray] = {}
        self._numbers = itertools.count()

    def image(self, repository: str, tag: str, **annotations: str) -> str:
        """Have an image of nothing; its digest."""
        empty = {"mediaType": "application/vnd.oci.empty.v1+json", "size": len(EMPTY),
                 "digest": self._blob(EMPTY)}  # fmt: skip
        document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": empty, "layers": [empty],
                    "annotations": annotations}  # fmt: skip
        return self._manifest(repository, tag, MANIFEST, json.dumps(document).encode())

    def app(self) -> web.Application:
        """Serve it over HTTP."""
        app = web.Application(client_max_size=0)
        app.router.add_get("/v2/", _fine)
        app.router.add_post("/v2/{name:.+}/blobs/uploads/", self._begin)
        app.router.add_patch("/v2/{name:.+}/blobs/uploads/{id}", self._more)
        app.router.add_put("/v2/{name:.+}/blobs/uploads/{id}", self._end)
        app.router.add_get("/v2/{name:.+}/blobs/{digest}", self._read)
        app.router.add_put("/v2/{name:.+}/manifests/{reference}", self._name)
        app.router.add_get("/v2/{name:.+}/manifests/{reference}", self._find)
        app.router.add_get("/v2/{name:.+}/referrers/{digest}", self._refer)
        return app

    def _blob(self, data: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blobs[digest] = data
        return digest

    def _manifest(self, repository: str, reference: str, kind: str, data: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.manifests[repository, digest] = self.manifests[repository, reference] = (kind, data)
        return digest

    async def _begin(self, request: web.Request) -> web.Response:
        number = str(next(self._numbers))
        self._uploads[number] = bytearray()
        return web.Response(status=202, headers={"Location": f"{request.path}{number}"})

    async def _more(self, request: web.Request) -> web.Response:
        upload = self._uploads[request.match_info["id"]]
        upload += await request.read()
        headers = {"Location": request.path, "Range": f"0-{len(upload) - 1}"}
        return web.Response(status=202, headers=headers)

    async def _end(self, request: web.Request) -> web.Response:
        data = self._uploads.pop(request.match_info["id"]) + await request.read()
        if (digest := self._blob(bytes(data))) != request.query["digest"]:
            raise web.HTTPBadRequest(text=f"that is {digest}")
        return web.Response(status=201, headers={"Docker-Content-Digest": digest})

    async def _read(self, request: web.Request) -> web.Response:
        if (data := self.blobs.get(request.match_info["digest"])) is None:
            raise web.HTTPNotFound
        return web.Response(body=data)

    async def _name(self, request: web.Request) -> web.Response:
        data, asked = await request.read(), request.match_info
        digest = self._manifest(asked["name"], asked["reference"], request.content_type, data)
        headers = {"Docker-Content-Digest": digest}
        if subject := json.loads(data).get("subject"):
            headers["OCI-Subject"] = subject["digest"]
        return web.Response(status=201, headers=headers)

    async def _find(self, request: web.Request) -> web.Response:
        asked = request.match_info
        if (found := self.manifests.get((asked["name"], asked["reference"]))) is None:
            raise web.HTTPNotFound
        kind, data = found
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        headers = {"Docker-Content-Digest": digest}
        return web.Response(body=data, content_type=kind, headers=headers)

    async def _refer(self, request: web.Request) -> web.Response:
        asked = request.match_info
        found = [
            {"mediaType": kind, "digest": reference, "size": len(data), **_told(document)}
            for (name, reference), (kind, data) in self.manifests.items()
            if (name, reference.partition(":")[0]) == (asked["name"], "sha256")
            if (document := json.loads(data)).get("subject", {}).get("digest") == asked["digest"]
        ]
        body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": found})
        # Who asks wants this type to the letter: a text would have its encoding in it.
        return web.Response(body=body.encode(), content_type=INDEX)


def _told(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return what a manifest is found by."""
    kind = manifest.get("artifactType") or manifest["config"]["mediaType"]
    return {"artifactType": kind, "annotations": manifest.get("annotations", {})}


async def _fine(_: web.Request) -> web.Response:
    return web.json_response({})


@contextmanager
def serving() -> Iterator[Registry]:
    """Serve an empty registry, in a thread of its own, till the end of the block."""
    registry, ready = Registry(), threading.Event()
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        runner = web.AppRunner(registry.app())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        registry.address = f"127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await over.wait()
        await runner.cleanup()

    def work() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    try:
        yield registry
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
