# SPDX-License-Identifier: Apache-2.0
"""The process, thin: parts put together, jobs reconciled one pass at a time, a webhook, metrics.

Rule: nothing is decided here. What a job needs is decided by `controller`, where its pods go by
`allocator`; this carries out and starts and stops. Only `commands`, `local` and `cli` are above.
"""
