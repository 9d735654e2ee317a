# SPDX-License-Identifier: Apache-2.0
"""What is known: the objects of the cluster and the indices over them.

Rule: the store itself is made and asked without a client. `informers` are the one part that holds
one, and they only feed it. Below are `cluster`, whose state the store keeps event by event, and
`kube`; `allocator` and `runtime` read here and are called when something has changed.
"""
