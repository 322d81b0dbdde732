#!/usr/bin/env bash
# Runs a command under Slurm's srun with this machine as a cluster of one node: munge, controller and node
# daemon are started for it and ended behind it. Needs root.
#
#   slurm.sh FOLDER PORT TASKS COMMAND...        FOLDER is filled with configuration and logs
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
readonly folder=$1 port=$2 tasks=$3
shift 3
mkdir -p "$folder"/{state,spool}
chmod 755 "$folder"
export PATH=$PATH:/usr/sbin SLURM_CONF=$folder/slurm.conf
name=$(hostname -s)
head -c 128 /dev/urandom >"$folder/munge.key"
chmod 400 "$folder/munge.key"
cat >"$SLURM_CONF" <<END
ClusterName=dovetail
SlurmctldHost=$name(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CryptoType=crypto/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
NodeName=$name NodeAddr=127.0.0.1 CPUs=64 State=UNKNOWN
PartitionName=all Nodes=$name Default=YES OverSubscribe=FORCE:64 State=UP
SlurmdParameters=config_overrides
END
daemons=()
stop() {
  ((${#daemons[@]} == 0)) || kill "${daemons[@]}" 2>/dev/null || true
  wait
}
trap stop EXIT
munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
  --pid-file="$folder/munge.pid" --log-file="$folder/munge.log" --seed-file="$folder/munge.seed" \
  >/dev/null 2>&1 &
daemons+=($!)
slurmctld -D >/dev/null 2>&1 &
daemons+=($!)
slurmd -D >/dev/null 2>&1 &
daemons+=($!)
for ((i = 0; i < 200; ++i)); do
  [[ $(sinfo --noheader --format=%t 2>/dev/null) == idle ]] && break
  sleep 0.1
done
srun --ntasks="$tasks" --overcommit "$@"
