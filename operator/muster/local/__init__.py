# SPDX-License-Identifier: Apache-2.0
"""A real API server on this machine, with simulated nodes and pods.

Rule: no emulator. What runs are etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
kwok; this package only finds, starts, feeds and stops them. It speaks to them through `kube` and
reads jobs by `api` and `frameworks`; it knows nothing of `store`, `allocator` and `runtime`: the
demo's operator is another process. Beside it is `commands`, above it only `cli`.
From Python: `cluster.up(options.Options(...))` gives a running `cluster.Cluster`.
"""
