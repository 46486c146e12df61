#!/usr/bin/env bash
# End what start.sh FOLDER has started, and every job in it.
set -uo pipefail
export SLURM_CONF=$1/slurm.conf
[ -f "$1/pids" ] || exit 0
timeout 5 scancel --signal=KILL --full --user="$(id -un)" 2>/dev/null
timeout 5 scancel --user="$(id -un)" 2>/dev/null
for _ in $(seq 50); do [ -z "$(timeout 5 squeue --noheader 2>/dev/null)" ] && break; sleep 0.1; done
while read -r pid; do kill -TERM "$pid" 2>/dev/null; done < "$1/pids"
for _ in $(seq 50); do
    left=$(while read -r pid; do [ -e "/proc/$pid" ] && echo "$pid"; done < "$1/pids")
    [ -z "$left" ] && break
    sleep 0.1
done
while read -r pid; do kill -KILL -- "-$pid" 2>/dev/null; done < "$1/pids"
rm -f "$1/pids"
