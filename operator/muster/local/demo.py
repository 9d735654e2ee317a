# SPDX-License-Identifier: Apache-2.0
"""`muster demo`: real TFJobs as gangs on a local cluster, told as they happen, then drawn."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from muster.local import (
    binaries,
    chart,
    cluster,
    history,
    layout,
    options,
    picture,
    runner,
    svg,
    watching,
)
from muster.local.handle import ClusterError
from muster.local.show import Show, ShowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from muster.local.chart import Paint
    from muster.local.handle import Cluster
    from muster.local.history import Sight
    from muster.local.runner import Runner

    Say = Callable[[str], None]

NAME = "demo"
NODES = 4
GPUS = 4
LIMIT_SECONDS = 120.0
"""After the first job is applied."""

FIRST = "tfjob-gang-waits.yaml"
WAITS = "second"
THEN = ("tfjob-ps-worker-gpu.yaml", "tfjob-exit-code.yaml", "tfjob-simple.yaml")
_VERDICT_SECONDS = 10.0
_SETTLE_SECONDS = 5.0
_SHAPE = {"cpu": "8", "memory": "32Gi", history.GPU: str(GPUS), "pods": "110"}
_HERE = Path(__file__).resolve()
_ERRORS = (ShowError, ClusterError, binaries.BinariesError)


def main(*, keep: bool = False, out: Path | None = None) -> int:
    """Run the show; the exit code is 0 only if every job ended as it is meant to.

    `keep` leaves cluster, operator and jobs as they are at the end; `out` is where to draw.
    """
    begun = time.monotonic()
    try:
        _show(keep=keep, out=out or _default_out())
    except _ERRORS as error:
        print(f"muster demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("muster demo: interrupted", file=sys.stderr)
        return 130
    _say(f"All jobs ended as they are meant to, in {time.monotonic() - begun:.0f} s.")
    return 0


def _show(*, keep: bool, out: Path) -> None:
    examples, manifests = _shipped("examples"), _shipped("manifests") / "overlays" / "embedded"
    _make_folder(out)
    with _cluster(keep=keep) as where:
        operator = runner.start(where, manifests)
        try:
            operator.wait_ready()
            _say("Muster is ready: an operator with the rights that it ships, and no more.")
            asyncio.run(_play(where, operator, examples, out))
        except (ShowError, ClusterError) as error:
            log = out.with_suffix(".log")
            log.write_text(operator.log.read_text(errors="replace"))
            raise ShowError(f"{error}\nThe operator's log: {_nearby(log)}") from error


@contextlib.contextmanager
def _cluster(*, keep: bool) -> Iterator[Cluster]:
    """Bring up a cluster and take it down; one that is to be kept goes down only on errors.

    It is tied to this process, and has a name of its own, unless it is kept.
    """
    name = NAME if keep else f"{NAME}-{os.getpid()}"
    if keep and cluster.find(name):
        raise ShowError(f"there is a kept one: muster local down --name {name}")
    _say(f"A real API server with {NODES} simulated nodes, {GPUS} GPUs each:")
    wanted = options.Options(name=name, nodes=NODES, shapes=(_SHAPE,), tied=not keep)
    made = cluster.up(wanted, _say)
    kept = False
    try:
        yield made
        kept = keep
    finally:
        if not kept:
            cluster.down(name)
    if kept:
        _say(f'Kept: eval "$(muster local env --name {name})"; kubectl get tfjobs,pods')
        _say(f"To end it: muster local down --name {name}\n")


async def _play(where: Cluster, operator: Runner, examples: Path, out: Path) -> None:
    paint = chart.coloured if _in_colour() else chart.plain
    since = time.monotonic()
    async with watching.Watching(where, "default", since) as watch:
        show = Show(where, watch, say=_say, check=operator.check, paint=paint)
        await _apply(show, examples, (FIRST,))
        if not await show.listen(lambda: show.waits(WAITS), _VERDICT_SECONDS):
            raise ShowError(
                f"{WAITS} does not say within {_VERDICT_SECONDS:.0f} s why it waits; "
                f"{show.unfinished()}"
            )
        _say(f"\n{WAITS} waits and holds nothing. Smaller jobs may have what is left:")
        await _apply(show, examples, THEN)
        if not await show.listen(show.ended, LIMIT_SECONDS):
            raise ShowError(f"after {LIMIT_SECONDS:.0f} s {show.unfinished()}")
        await show.listen(show.settled, _SETTLE_SECONDS)
        _say(f"\n$ kubectl get tfjobs\n{show.kubectl('get', 'tfjobs')}\n")
    _draw(show.seen, out, paint)


async def _apply(show: Show, examples: Path, files: Sequence[str]) -> None:
    for file in files:
        await show.apply(examples / file, f"examples/{file}")


def _draw(seen: Sequence[Sight], out: Path, paint: Paint) -> None:
    nodes = [picture.Node(f"node-{index + 1}", GPUS) for index in range(NODES)]
    drawn = picture.arrange(seen, nodes)
    _say(chart.render(drawn, paint))
    out.write_text(svg.render(drawn, "muster demo: who ran where, and when"))
    _say(f"The same as a picture: {_nearby(out)}")


def _shipped(folder: str) -> Path:
    """Find a folder of the repository, or its copy in an installed package."""
    for path in (_HERE.parent / folder, _HERE.parents[3] / folder):
        if path.is_dir():
            return path
    raise ShowError(
        f"the folder {folder} of Muster's repository is missing from this installation: "
        "run `make demo` in a clone"
    )


def _default_out() -> Path:
    """`build/` of the clone, which git ignores; without one, beside the local clusters."""
    clone = _HERE.parents[3]
    folder = clone / "build" if (clone / "examples").is_dir() else layout.state_root().parent
    return folder / "muster-demo.svg"


def _make_folder(path: Path) -> None:
    """Find out before the show whether its picture can be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        path.touch()
        if new:
            path.unlink()
    except OSError as error:
        raise ShowError(f"{path} cannot be written: {error.strerror}") from error


def _nearby(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _in_colour() -> bool:
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def _say(text: str) -> None:
    print(text, flush=True)
