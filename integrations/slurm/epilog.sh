#!/bin/sh
# Slurm epilog of a compute node: after the last job of the node, flush the caches of all devices and delete their volumes.
#
#     slurm.conf:    Epilog=/etc/slurm/elastio-epilog.sh
#
# It does not wait for the flush: the node takes the next job meanwhile. That job's load boosts after the flush, or at
# once if its prolog boosts. Without an epilog the agent flushes by itself, after policy.inactivity_delay_s, and a load
# that returns during that flush is served. It always exits with 0, as the prolog does.
ELASTIO=${ELASTIO:-/usr/bin/elastio}
JOBS=${ELASTIO_JOBS:-/run/elastio-slurm}
PATH=/usr/sbin:/usr/bin:/sbin:/bin

rm -f "$JOBS/${SLURM_JOB_ID:-unknown}"
# Fails while another job of this node is left, and if the prolog never ran.
rmdir "$JOBS" 2>/dev/null || exit 0
timeout 10 "$ELASTIO" flush --all 2>&1 </dev/null | logger -t elastio-slurm
exit 0
