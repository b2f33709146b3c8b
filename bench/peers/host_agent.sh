#!/bin/sh
# What ssh is to the launchers of Open MPI and MPICH, for the hosts of bench/hosts/links.py:
#
#   host_agent.sh [OPTION...] ADDRESS COMMAND...        runs COMMAND on the host that has the address
#
# The variable HOST_AGENT_PREFIX has what the names of the hosts' network namespaces begin with. Every host gets a host
# name of its own, because launchers tell machines apart by their names.
set -eu
while case $1 in -*) true ;; *) false ;; esac; do
  shift
done
address=$1
shift
name=${HOST_AGENT_PREFIX}h$((${address##*.} - 1))
exec ip netns exec "$name" unshare --uts sh -c "hostname $name; $*"
