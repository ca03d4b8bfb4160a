"""A training program with argparse, swept as it is: no line of it knows of a sweep.

Its flags are found out from `--help`, each trial starts it with values of its own, and what it
prints as `val_loss: …` is a report, by which a trial that does badly is stopped.

$ python -m automl objective=command objective.command='python argparse_script.py --epochs 12' \
    study.name=argparse study.n_trials=6 pruner.max_steps=12 \
    space='{lr: {low: 1e-3, high: 1.0, log: true}, hidden-size: {choices: [8, 32]}}'
"""

import argparse

import torch
from torch import nn


def rings(n, generator):
    """Points of three rings around one center, and which of them each is on."""
    label = torch.randint(3, (n,), generator=generator)
    angle = 2 * torch.pi * torch.rand(n, generator=generator)
    radius = (label + 1 + 0.1 * torch.randn(n, generator=generator)).unsqueeze(1)
    return radius * torch.stack([angle.cos(), angle.sin()], dim=1), label


def main():
    parser = argparse.ArgumentParser(description="Tell three rings apart.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--hidden-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    x, y = rings(1000, generator)
    x_val, y_val = rings(500, generator)
    model = nn.Sequential(
        nn.Linear(2, args.hidden_size),
        nn.Tanh(),
        nn.Linear(args.hidden_size, args.hidden_size),
        nn.Tanh(),
        nn.Linear(args.hidden_size, 3),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(args.epochs):
        for rows in torch.randperm(len(x)).split(50):
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            scores = model(x_val)
        val_loss = nn.functional.cross_entropy(scores, y_val)
        accuracy = (scores.argmax(dim=1) == y_val).float().mean()
        print(f"epoch {epoch}: val_loss: {val_loss:.4f}, accuracy: {accuracy:.3f}")


if __name__ == "__main__":
    main()
