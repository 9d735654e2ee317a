# SPDX-License-Identifier: Apache-2.0
"""A real API server on this machine, with simulated nodes and pods.

Rule: no emulator. What runs here are etcd, kube-apiserver, kube-controller-manager,
kube-scheduler and kwok themselves; this package only finds, starts, feeds and stops them.

From Python: `cluster.up(options.Options(...))` gives a running `cluster.Cluster`.
"""
