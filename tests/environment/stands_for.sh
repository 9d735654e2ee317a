#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stands for ssh and kubectl: notes its arguments as a line of $CALLS and runs the command here,
# with REACHED set to the host or pod that it would have run on, and temporary files of its own
# below $TEMPORARY, as daemons on different machines have them.
set -eu
line=$(basename "$0")
for word in "$@"; do line="$line|$word"; done
printf '%s\n' "$line" >>"$CALLS"
case ${0##*/} in
kubectl)
    [ "$1" = exec ]
    REACHED=$2
    while [ "$1" != -- ]; do shift; done
    shift
    ;;
*)
    while [ "${1#-}" != "$1" ]; do
        case $1 in -o) shift 2 ;; *) shift ;; esac
    done
    REACHED=$1
    shift
    set -- /bin/sh -c "$*"
    ;;
esac
TMPDIR=$TEMPORARY/$REACHED
mkdir -p "$TMPDIR"
export REACHED TMPDIR
exec "$@"
