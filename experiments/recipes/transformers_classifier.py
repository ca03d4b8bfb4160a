"""Transformers' Trainer on a tiny BERT of random weights: two lines know of the sweep.

The callback reports `eval_loss` after each evaluation, ends trials that are pruned, and gives each
trial an `output_dir` of its own. `last_checkpoint` has a trial that was interrupted go on where it
was; leave it out where trials are short. The task: is the first word of a sentence its last?

$ python -m automl objective=python objective.target=transformers_classifier.py:train \
    study.name=transformers study.n_trials=6 study.metric=eval_loss pruner.max_steps=4 \
    space='{learning_rate: {low: 1e-4, high: 3e-2, log: true}, hidden_size: [16, 32]}'
"""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from automl.integrations.transformers import TransformersReport, last_checkpoint

N_WORDS = 8


def sentences(n, seed):
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, N_WORDS, (n, 4), generator=generator)
    words[::2, -1] = words[::2, 0]
    return [{"input_ids": line, "labels": int(line[0] == line[-1])} for line in words]


def model(hidden_size):
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=N_WORDS,
            hidden_size=hidden_size,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=hidden_size,
        )
    )


def train(learning_rate, hidden_size, *, trial):
    torch.manual_seed(trial.seed)
    trainer = Trainer(
        model(hidden_size),
        TrainingArguments(
            learning_rate=learning_rate,
            num_train_epochs=4,
            per_device_train_batch_size=32,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=sentences(1000, seed=1),
        eval_dataset=sentences(500, seed=2),
        callbacks=[TransformersReport(trial, "eval_loss")],
    )
    trainer.train(resume_from_checkpoint=last_checkpoint(trial))
