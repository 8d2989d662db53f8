#!/bin/sh
# Slurm prolog of a compute node: before a job, buy or announce the cache that its partition is known to need.
#
#     slurm.conf:    Prolog=/etc/slurm/elastio-prolog.sh
#     /etc/elastio/slurm-partitions, one line a partition:
#         cm1      expect --in 13m --size 5G      the job computes for 13 minutes, then writes 5 GiB
#         import   boost --size 10                the job writes at once
#         two      expect --in 5m --device data   where there are several devices, each line names one
#
# slurmd runs it as root, without a search path, and drains the node if it fails: it always exits with 0 and takes at
# most ten seconds. What elastio answered is in the journal: journalctl -t elastio-slurm
ELASTIO=${ELASTIO:-/usr/bin/elastio}
PARTITIONS=${ELASTIO_PARTITIONS:-/etc/elastio/slurm-partitions}
JOBS=${ELASTIO_JOBS:-/run/elastio-slurm}
PATH=/usr/sbin:/usr/bin:/sbin:/bin
set -f

ask() {
    timeout 10 "$ELASTIO" "$@" 2>&1 </dev/null | logger -t elastio-slurm
}

# The epilog flushes after the last job of the node.
mkdir -p "$JOBS" && : >"$JOBS/${SLURM_JOB_ID:-unknown}"

while read -r partition command arguments; do
    [ "$partition" = "$SLURM_JOB_PARTITION" ] || continue
    # shellcheck disable=SC2086 # the arguments are words of the table; globbing is off
    case $command in
        boost | expect) ask "$command" $arguments ;;
        *) echo "$PARTITIONS: $partition: '$command' is neither boost nor expect" | logger -t elastio-slurm ;;
    esac
done 2>/dev/null <"$PARTITIONS"
exit 0
