# SPDX-License-Identifier: Apache-2.0
"""A real API server on this machine, with simulated nodes and pods.

Rule: no emulator. What runs here are etcd, kube-apiserver, kube-controller-manager,
kube-scheduler and kwok themselves; this package only finds, starts, feeds and stops them. It
speaks to them through `kube` and reads jobs by `api` and `frameworks`; of `store`, `allocator`
and `runtime` it knows nothing: the operator of its demo is a process like the others. Beside it
is `commands`, above it only `cli`.

From Python: `cluster.up(options.Options(...))` gives a running `cluster.Cluster`.
"""
