# SPDX-License-Identifier: Apache-2.0
# Debian builds PyTorch for CPUs; PyPI's is made for GPUs and several times as large.
FROM localhost/muster/base:1
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-torch \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
# Its torchrun was written before Python 3.11, whose flags no longer count zero among themselves.
RUN sed -i 's/for s in Std:/for s in (Std.NONE, *Std):/' \
    /usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py
