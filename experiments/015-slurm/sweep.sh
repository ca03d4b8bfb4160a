#!/bin/bash
#SBATCH --time=1 --signal=B:USR1@20 --requeue --open-mode=append --cpus-per-task=2 --output=sweep.log
trap 'kill -USR1 $!; wait $!; scontrol requeue $SLURM_JOB_ID' USR1
sweep="python -m automl study.name=big study.n_trials=4 training.epochs=6000 pruner=none"
if [ -d studies/big ]; then sweep="python -m automl resume study.name=big"; fi
$sweep &
wait $!
