# SPDX-License-Identifier: Apache-2.0
# Debian builds mpi4py for OpenMPI; PyPI's finds the library that it is told.
FROM localhost/muster/base:1
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends mpich \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
    && pip install --break-system-packages --no-cache-dir --ignore-installed mpi4py==4.1.2
ENV MPI4PY_MPIABI=mpich MPI4PY_LIBMPI=libmpich.so.12
