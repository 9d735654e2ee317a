# SPDX-License-Identifier: Apache-2.0
"""Each rank tells the master its number; each is told the numbers of all, and adds them up."""

import json
import os
import socket
import time

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def lead() -> list[int]:
    """Hear of all the others, then tell everybody of everybody."""
    ranks, heard = [RANK], []
    with socket.create_server(("", ADDRESS[1])) as server:
        while len(ranks) < SIZE:
            connection, _ = server.accept()
            heard.append(connection)
            ranks.append(json.loads(connection.makefile().readline()))
    for connection in heard:
        connection.sendall(f"{json.dumps(ranks)}\n".encode())
        connection.close()
    return ranks


def follow() -> list[int]:
    """Tell the master, and hear of all."""
    tries = 0
    while True:
        try:
            connection = socket.create_connection(ADDRESS, timeout=60)
            break
        except OSError as error:
            tries += 1
            print(f"try {tries}: {error}")
            time.sleep(0.5)
    connection.sendall(f"{RANK}\n".encode())
    return json.loads(connection.makefile().readline())


print(f"rank {RANK} of {SIZE}, the master is {ADDRESS[0]}:{ADDRESS[1]}")
met = lead() if RANK == 0 else follow()
assert sorted(met) == list(range(SIZE)), met
print(f"rank {RANK} met all {SIZE}, their sum is {sum(met)}")
