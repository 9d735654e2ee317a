# SPDX-License-Identifier: Apache-2.0
FROM localhost/muster/base:1
RUN pip install --break-system-packages --no-cache-dir paddlepaddle==2.6.2 'protobuf<6'
