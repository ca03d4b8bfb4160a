"""Objectives as people write their loops, the less usual ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, TensorDataset

import automl
from tests.measure.survey.way import (
    BATCH,
    CONV,
    IMAGES,
    N_INPUTS,
    RNN,
    TRANSFORMER,
    WIDTH,
    X,
    Y,
    batches,
    network,
    step,
    way,
)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(x + self.norm2(self.conv2(y)), inplace=True)


@way(CONV)
def resnet(trial: automl.TrialContext) -> None:
    layers = [nn.Conv2d(3, 16, 3, padding=1), Block(16), Block(16), nn.AdaptiveAvgPool2d(1)]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 10)).to(trial.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    data = TensorDataset(IMAGES, Y[: len(IMAGES)])
    n_workers = 0 if trial.device == "cpu" else 2
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=n_workers, drop_last=True)
    for epoch in range(2):
        for x, y in loader:
            step(net, optimizer, x.to(trial.device), y.to(trial.device))
        schedule.step()
        trial.report(epoch, {"val_loss": 0.5})


@way()
def gan(trial: automl.TrialContext) -> None:
    make = nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU(), nn.Linear(WIDTH, N_INPUTS))
    judge = nn.Sequential(nn.Linear(N_INPUTS, WIDTH), nn.LeakyReLU(0.2), nn.Linear(WIDTH, 1))
    make, judge = make.to(trial.device), judge.to(trial.device)
    of_make, of_judge = (torch.optim.Adam(net.parameters()) for net in (make, judge))
    loss_of = nn.BCEWithLogitsLoss()
    for x, _ in batches():
        real, fake = x.to(trial.device), make(torch.randn(BATCH, 16, device=trial.device))
        yes, no = torch.ones(BATCH, 1, device=trial.device), torch.zeros_like(real[:, :1])
        of_judge.zero_grad()
        (loss_of(judge(real), yes) + loss_of(judge(fake.detach()), no)).backward()
        of_judge.step()
        of_make.zero_grad()
        loss_of(judge(fake), yes).backward()
        of_make.step()


@way()
def accumulated(trial: automl.TrialContext) -> None:
    net = network().to(trial.device)
    optimizer = torch.optim.AdamW(net.parameters())
    loader = DataLoader(TensorDataset(X, Y), batch_size=16)
    for epoch in range(2):
        for i, (x, y) in enumerate(loader, start=1):
            loss = F.cross_entropy(net(x.to(trial.device)), y.to(trial.device)) / 4
            loss.backward()  # type: ignore[no-untyped-call]
            if i % 4 == 0:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        trial.report(epoch, {"val_loss": 0.5})


@way()
def data_parallel(trial: automl.TrialContext) -> None:
    net: nn.Module = network().to(trial.device)
    if torch.cuda.device_count() > 0:
        net = nn.DataParallel(net)
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in batches():
        step(net, optimizer, x.to(trial.device), y.to(trial.device))


class SAM(torch.optim.Optimizer):
    """Two backward passes a step: at the weights, and at the worst ones near them."""

    def __init__(self, params: Any, base: type[torch.optim.Optimizer], **settings: Any) -> None:
        super().__init__(params, {"rho": 0.05, **settings})
        self.base = base(self.param_groups, **settings)

    @torch.no_grad()
    def climb(self) -> None:
        params = [p for group in self.param_groups for p in group["params"]]
        norm = torch.norm(torch.stack([p.grad.norm() for p in params]))
        for p in params:
            self.state[p]["climbed"] = p.grad * (0.05 / (norm + 1e-12))
            p.add_(self.state[p]["climbed"])
        self.zero_grad()

    @torch.no_grad()
    def descend(self) -> None:
        for p in (p for group in self.param_groups for p in group["params"]):
            p.sub_(self.state[p]["climbed"])
        self.base.step()
        self.zero_grad()


@way()
def sam(trial: automl.TrialContext) -> None:
    net = network().to(trial.device)
    optimizer = SAM(net.parameters(), torch.optim.Adam, lr=0.01)
    for x, y in batches():
        x, y = x.to(trial.device), y.to(trial.device)
        F.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.climb()
        F.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.descend()


@way(RNN)
def packed_sequences(trial: automl.TrialContext) -> None:
    embed, rnn, head = nn.Embedding(100, 64), nn.GRU(64, 128, batch_first=True), nn.Linear(128, 10)
    nets = nn.ModuleList([embed, rnn, head]).to(trial.device)
    optimizer = torch.optim.Adam(nets.parameters())
    lengths = torch.arange(32) % 16 + 1
    for _ in range(3):
        tokens = torch.randint(100, (32, 16)).to(trial.device)
        packed = pack_padded_sequence(embed(tokens), lengths, True, enforce_sorted=False)
        optimizer.zero_grad()
        F.cross_entropy(head(rnn(packed)[1][-1]), Y[:32].to(trial.device)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@way()
def functional(trial: automl.TrialContext) -> None:
    net = network().to(trial.device)
    weights = {name: p.detach() for name, p in net.named_parameters()}

    def loss_of(weights: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(net, weights, (x,)), y)

    for epoch in range(3):
        for x, y in batches():
            grads = torch.func.grad(loss_of)(weights, x.to(trial.device), y.to(trial.device))
            weights = {name: w - 0.1 * grads[name] for name, w in weights.items()}
        trial.report(epoch, {"val_loss": 0.5})


@way()
def epoch_generator(trial: automl.TrialContext) -> None:
    def epochs() -> Iterator[tuple[int, float]]:
        net = network().to(trial.device)
        optimizer = torch.optim.RMSprop(net.parameters())
        for epoch in range(2):
            losses = [
                step(net, optimizer, x.to(trial.device), y.to(trial.device)) for x, y in batches()
            ]
            yield epoch, sum(losses)

    for epoch, loss in epochs():
        trial.report(epoch, {"val_loss": loss})


def encoder(width: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@way(TRANSFORMER)
def transformer(trial: automl.TrialContext) -> None:
    net = nn.Sequential(nn.Embedding(100, 64), encoder(64), nn.Linear(64, 100)).to(trial.device)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        tokens = torch.randint(100, (16, 33)).to(trial.device)
        optimizer.zero_grad()
        F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@way(RNN)
def lstm(trial: automl.TrialContext) -> None:
    rnn, head = nn.LSTM(64, 64, 2, batch_first=True), nn.Linear(64, 10)
    nets = nn.ModuleList([rnn, head]).to(trial.device)
    optimizer = torch.optim.Adam(nets.parameters())
    for _ in range(3):
        x = torch.randn(32, 16, 64).to(trial.device)
        optimizer.zero_grad()
        F.cross_entropy(head(rnn(x)[0][:, -1]), Y[:32].to(trial.device)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
