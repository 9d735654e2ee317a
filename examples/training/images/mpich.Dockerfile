# SPDX-License-Identifier: Apache-2.0
# Debian builds mpi4py for OpenMPI; PyPI's takes MPICH, under the name that it has elsewhere.
FROM localhost/muster/base:1
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends mpich \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
    && ln -s libmpich.so.12 "/usr/lib/$(uname -m)-linux-gnu/libmpi.so.12" \
    && pip install --break-system-packages --no-cache-dir --ignore-installed mpi4py==4.1.2 \
    && MPI4PY_MPIABI=mpich python3 -c 'from mpi4py import MPI; assert "MPICH" in MPI.Get_library_version()'
ENV MPI4PY_MPIABI=mpich
