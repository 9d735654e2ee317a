# SPDX-License-Identifier: Apache-2.0
"""What is known: the objects of the cluster and the indices over them.

Rule: the store itself is made and asked without a client. What feeds it holds one: `informers`,
`permissions`, which say what may be followed at all, and the reads `ondemand`. Below are
`cluster`, whose state the store keeps event by event, and `kube`; `allocator` and `runtime` read
here and are called when something has changed.
"""
