"""Objectives as people write their loops, each in its own way; the network and data are small."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import automl
from tests.measure.survey.way import BATCH, N_INPUTS, WIDTH, X, Y, batches, network, step, way

# --- the usual ones -----------------------------------------------------------------------------


@way()
def loss_item(trial: automl.TrialContext) -> None:
    net = network().to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    for epoch in range(2):
        loss = sum(
            step(net, optimizer, x.to(trial.device), y.to(trial.device)) for x, y in batches()
        )
        trial.report(epoch, {"val_loss": loss})


@way()
def cuda_method(trial: automl.TrialContext) -> None:
    def put(what: Any) -> Any:
        return what.cuda() if trial.device.startswith("cuda") else what

    net = put(network())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches():
        step(net, optimizer, put(x), put(y))


@way()
def factories(trial: automl.TrialContext) -> None:
    net = nn.Linear(N_INPUTS, WIDTH, device=trial.device)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        x = torch.randn(BATCH, N_INPUTS, device=trial.device)
        mask = torch.zeros_like(x)
        y = torch.randint(0, 10, (BATCH,), device=x.device)
        step(net, optimizer, x + mask, y)


@way()
def gradient_scaler(trial: automl.TrialContext) -> None:
    kind = torch.device(trial.device).type
    net = network().to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    scaler = torch.amp.GradScaler(kind)
    for x, y in batches():
        x, y = x.to(trial.device), y.to(trial.device)
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@way()
def compiled(trial: automl.TrialContext) -> None:
    net: Any = network().to(trial.device)
    if trial.device != "cpu":  # the compiler takes a minute
        net = torch.compile(net)
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in batches():
        step(net, optimizer, x.to(trial.device), y.to(trial.device))


@way()
def mask(trial: automl.TrialContext) -> None:
    net = network().to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in batches():
        x, y = x.to(trial.device), y.to(trial.device)
        optimizer.zero_grad()
        z, keep = net(x), y > 2
        F.cross_entropy(z[keep], y[keep]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@way()
def branches(trial: automl.TrialContext) -> float:
    net = network().to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    loss = torch.zeros(())
    for x, y in batches():
        x, y = x.to(trial.device), y.to(trial.device)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        assert torch.isfinite(loss)
        if torch.isnan(loss) or loss > 100:
            raise ValueError("diverged")
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if (net(x).argmax(1) == y).float().mean() > 0.99:
            break
    return float(loss)


@way()
def recomputed(trial: automl.TrialContext) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Sequential(nn.Linear(N_INPUTS, 2048), nn.ReLU(), nn.Linear(2048, N_INPUTS))
            self.head = nn.Linear(N_INPUTS, 10)

        def forward(self, x: torch.Tensor) -> Any:
            return self.head(checkpoint(self.a, x, use_reentrant=False))

    net = Net().to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in batches():
        step(net, optimizer, x.to(trial.device), y.to(trial.device))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return 2 * ctx.saved_tensors[0] * grad


@way()
def own_function(trial: automl.TrialContext) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(N_INPUTS, WIDTH), nn.Linear(WIDTH, 10)

        def forward(self, x: torch.Tensor) -> Any:
            return self.head(Square.apply(self.body(x)))  # type: ignore[no-untyped-call]

    net = Net().to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in batches():
        step(net, optimizer, x.to(trial.device), y.to(trial.device))


def _with_loader(trial: automl.TrialContext, **settings: Any) -> None:
    net = network().to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    loader = DataLoader(TensorDataset(X, Y), batch_size=BATCH, **settings)
    for epoch in range(2):
        net.train()
        for x, y in loader:
            step(net, optimizer, x.to(trial.device, non_blocking=True), y.to(trial.device))
        net.eval()
        with torch.no_grad():
            right = sum((net(x.to(trial.device)).argmax(1).cpu() == y).sum() for x, y in loader)
        trial.report(epoch, {"val_loss": 1 - float(right) / len(X)})


@way()
def loader_workers(trial: automl.TrialContext) -> None:
    _with_loader(trial, shuffle=True, num_workers=0 if trial.device == "cpu" else 2)


@way()
def pinned(trial: automl.TrialContext) -> None:
    _with_loader(trial, pin_memory=trial.device != "cpu")


@way()
def optimizer_before_to(trial: automl.TrialContext) -> None:
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    net.to(trial.device)
    for x, y in batches():
        step(net, optimizer, x.to(trial.device), y.to(trial.device))


@way()
def moving_average(trial: automl.TrialContext) -> None:
    net = network().to(trial.device)
    average = copy.deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in batches():
        step(net, optimizer, x.to(trial.device), y.to(trial.device))
        with torch.no_grad():
            for a, b in zip(average.parameters(), net.parameters(), strict=True):
                a.lerp_(b, 0.1)


@way()
def state_dicts(trial: automl.TrialContext) -> None:
    net = network().to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in batches():
        step(net, optimizer, x.to(trial.device), y.to(trial.device))
        state = {k: v.cpu().numpy().copy() for k, v in net.state_dict().items()}
        net.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})


@way()
def numpy_metrics(trial: automl.TrialContext) -> None:
    net = network().to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in batches():
        step(net, optimizer, x.to(trial.device), y.to(trial.device))
        predicted = net(x.to(trial.device)).detach().cpu().numpy().argmax(1)
        assert predicted.shape == (BATCH,)


@way()
def counted(trial: automl.TrialContext) -> None:
    net = network().to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in batches():
        x, y = x.to(trial.device), y.to(trial.device)
        classes, counts = torch.unique(y).tolist(), torch.bincount(y, minlength=10)
        assert len(classes) == 10
        assert counts.sum().item() == BATCH
        step(net, optimizer, x, y)


@way()
def lbfgs(trial: automl.TrialContext) -> None:
    net = network().to(trial.device)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4, history_size=4)
    x, y = X[:BATCH].to(trial.device), Y[:BATCH].to(trial.device)

    def closure() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss)

    for _ in range(3):
        optimizer.step(closure)  # type: ignore[no-untyped-call]


@way()
def data_on_the_device(trial: automl.TrialContext) -> None:
    x, y = X.clone().to(trial.device), Y.clone().to(trial.device)
    net = nn.Sequential(nn.Linear(N_INPUTS, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 10))
    net.to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    for epoch in range(2):
        order = torch.randperm(len(x), device=trial.device)
        for rows in order.split(BATCH):  # type: ignore[no-untyped-call]
            step(net, optimizer, x[rows], y[rows])
        trial.report(epoch, {"val_loss": 0.5})


@way()
def default_device(trial: automl.TrialContext) -> None:
    with torch.device(trial.device):
        net = network()
    optimizer = torch.optim.Adam(net.parameters())
    for x, y in batches():
        step(net, optimizer, x.to(trial.device), y.to(trial.device))
