# SPDX-License-Identifier: Apache-2.0
FROM localhost/muster/base:1
RUN pip install --break-system-packages --no-cache-dir xgboost-cpu==3.2.0
