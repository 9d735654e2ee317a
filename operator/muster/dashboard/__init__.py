# SPDX-License-Identifier: Apache-2.0
"""The read-only page of running and waiting gangs, nodes and queues.

`allocator.view` builds the data of the page from the snapshot of the allocator's last cycle. The
operator (`runtime`) serves the page; `commands` serve it for a cluster or for a snapshot file.
"""
