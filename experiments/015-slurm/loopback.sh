#!/usr/bin/env bash
# Starts Slurm's own daemons on this machine, submits sweep.sh and shows what became of it.
# As root, on Debian: apt-get install slurmctld slurmd munge
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
export SLURM_CONF=$folder/slurm.conf
export PATH=$here/../../.venv/bin:$PATH
mkdir "$folder/state" "$folder/spool" "$folder/job"
host=$(hostname -s)
cat >"$SLURM_CONF" <<EOF
ClusterName=local
SlurmctldHost=$host(127.0.0.1)
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
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES
EOF
pgrep -x munged >/dev/null || { install -d -o munge /run/munge && su -s /bin/sh munge -c munged; }
slurmctld
slurmd
trap 'kill $(cat "$folder"/slurm*.pid)' EXIT
until sinfo --noheader | grep -q idle; do sleep 1; done
cd "$folder/job"
sbatch "$here/sweep.sh"
until [ -z "$(squeue --noheader)" ]; do sleep 5; done
cat sweep.log
python -m automl status study.name=big
