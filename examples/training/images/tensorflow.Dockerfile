# SPDX-License-Identifier: Apache-2.0
# The last version whose Keras trains under a multi-worker or parameter server strategy.
FROM localhost/muster/base:1
RUN pip install --break-system-packages --no-cache-dir tensorflow-cpu==2.15.1
