# SPDX-License-Identifier: Apache-2.0
"""The door to the API server: requests, watches, order of writes, election, permissions, events.

Rule: whoever talks to an API server does it through here, and nothing here knows what a job is.
Below it are only the vocabulary of `api` and what `gang` says of permissions; `store` feeds on its
informers, `allocator` and `runtime` write through its client. It knows nothing of `cluster`.
"""
