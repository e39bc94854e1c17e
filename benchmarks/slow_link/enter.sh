#!/bin/sh
# A rank that horovodrun has started goes on, on the host of its own: enter.sh FOLDER COMMAND...
# (horovodrun starts ranks of other hosts by ssh, which namespaces do not have.)
#
# FOLDER/hosts.HOST becomes the host's /etc/hosts, in this process alone: Gloo takes the address of a process
# set from the host's name, not from HOROVOD_GLOO_IFACE.
set -eu
hosts="$1/hosts.worker$HOROVOD_RANK"
shift
export HOROVOD_GLOO_IFACE=eth1 HOROVOD_GLOO_RENDEZVOUS_ADDR="$HET_SLOW_LINK_RENDEZVOUS"
exec ip netns exec "worker$HOROVOD_RANK" \
    sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$hosts" "$@"
