#!/usr/bin/env bash
# A Slurm of one node with two CPUs, on loopback, in a folder of its own: start.sh FOLDER [PID]. The clients find it by
# SLURM_CONF=FOLDER/slurm.conf. It needs root, and Debian's slurm-wlm and munge. stop.sh FOLDER ends it, and so does the
# end of the process PID; in any case its daemons end after an hour.
set -euo pipefail
say() { echo "tests/slurm/start.sh: $1" >&2; exit 2; }
[ $# -ge 1 ] || say 'give the folder that it may fill'
[ "$(id -u)" = 0 ] || say 'needs root, because slurmd starts jobs as their users'
for program in munged slurmctld slurmd sbatch; do
    command -v "$program" >/dev/null || say "needs $program; Debian: make system-slurm"
done
folder=$(mkdir -p "$1" && cd "$1" && pwd)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir -p "$folder"/{state,spool,munge}
chmod 700 "$folder/munge"
head -c 1024 /dev/urandom > "$folder/munge/key" && chmod 400 "$folder/munge/key"
cat > "$folder/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port > 60000 ? port - 1 : port + 1))
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthInfo=socket=$folder/munge/socket,cred_expire=60
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SlurmdTimeout=600
MessageTimeout=60
BatchStartTimeout=5
KillWait=2
MpiDefault=none
ReturnToService=2
NodeName=localhost NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=short Nodes=localhost Default=YES MaxTime=60 State=UP
CONF
export SLURM_CONF=$folder/slurm.conf
alone() { setsid timeout --kill-after=5 3600 "$@" </dev/null >>"$folder/daemons.log" 2>&1 & echo $! >>"$folder/pids"; }
alone munged --foreground --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"
for _ in $(seq 600); do [ -S "$folder/munge/socket" ] && break; sleep 0.1; done
alone slurmctld -D
alone slurmd -D
for _ in $(seq 600); do
    if [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ]; then
        stop=$(cd "$(dirname "$0")" && pwd)/stop.sh
        if [ $# -gt 1 ]; then
            setsid sh -c 'tail --pid="$1" -f /dev/null; "$2" "$3"' - "$2" "$stop" "$folder" </dev/null >/dev/null 2>&1 &
        fi
        exit 0
    fi
    sleep 0.1
done
"$(dirname "$0")/stop.sh" "$folder"
say "the node did not become idle; see $folder/slurmctld.log, slurmd.log and daemons.log"
