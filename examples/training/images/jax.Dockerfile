# SPDX-License-Identifier: Apache-2.0
FROM localhost/muster/base:1
RUN pip install --break-system-packages --no-cache-dir 'jax[cpu]==0.6.2'
