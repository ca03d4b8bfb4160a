#!/bin/bash
#SBATCH --time=1 --signal=B:USR1@20 --requeue --open-mode=append --cpus-per-task=2 --output=sweep.log
trap 'kill -USR1 $!; wait $!; scontrol requeue $SLURM_JOB_ID' USR1
if [ -d studies/big ]; then set -- resume study.name=big
else set -- study.name=big study.n_trials=4 training.epochs=6000 pruner=none; fi
python -m automl "$@" &
wait $!
