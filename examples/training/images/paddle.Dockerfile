# SPDX-License-Identifier: Apache-2.0
FROM localhost/muster/base:1
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
    && pip install --break-system-packages --no-cache-dir paddlepaddle==2.6.2 'protobuf<6' \
    && python3 -c 'import paddle'
