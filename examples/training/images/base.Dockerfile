# SPDX-License-Identifier: Apache-2.0
# Python, OpenMPI with mpi4py, and an SSH server that root and mpiuser (uid 1000) can
# run alike.
FROM debian:bookworm-slim
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        ca-certificates python3 python-is-python3 python3-pip python3-numpy python3-mpi4py busybox \
        openmpi-bin openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
# Pods find each other by names that are new each time, with keys that are the job's own. Port 22 is
# root's alone.
RUN ln -s /bin/busybox /usr/local/bin/nslookup \
    && mkdir -p /run/sshd \
    && useradd --create-home --uid 1000 --password '*' mpiuser \
    && printf '%s\n' 'Port 2222' 'UsePAM no' 'StrictModes no' \
        >/etc/ssh/sshd_config.d/muster.conf \
    && printf '%s\n' 'Host *' '  Port 2222' '  StrictHostKeyChecking no' \
        '  UserKnownHostsFile /dev/null' '  LogLevel ERROR' >/etc/ssh/ssh_config.d/muster.conf \
    && printf '%s\n' 'Port 2222' 'StrictModes no' 'PidFile /home/mpiuser/sshd.pid' \
        'HostKey /home/mpiuser/.ssh/id_rsa' >/home/mpiuser/.sshd_config \
    && chown mpiuser /home/mpiuser/.sshd_config
ENV PYTHONUNBUFFERED=1
CMD ["python3"]
