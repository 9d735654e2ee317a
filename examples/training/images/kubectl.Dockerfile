# SPDX-License-Identifier: Apache-2.0
# Brings kubectl to the launcher of an MPIJob of v1, see --mpi-kubectl-delivery-image.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends kubernetes-client \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
CMD ["/bin/sh", "-c", "exec cp /usr/bin/kubectl \"$TARGET_DIR/kubectl\""]
