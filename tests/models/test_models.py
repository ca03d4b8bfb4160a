"""Networks and optimizers: shapes, draws, and the same steps as torch's own optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from automl.models.families.mlp.family import Growth, MLPFamily, MLPParams
from automl.models.families.mlp.network import MLP, MLPNetwork, MLPShape, draw_weights
from automl.models.networks.optimizers import FlatParameters, make_optimizer

SHAPE = MLPShape(n_inputs=3, hidden_widths=(5, 4), n_outputs=2)


def drawn(shape: MLPShape = SHAPE, dtype: torch.dtype = torch.float32) -> MLP:
    model = MLP(shape, dtype=dtype)
    draw_weights(model, torch.Generator().manual_seed(3))
    return model


def widths_of(model: MLP) -> list[tuple[int, int]]:
    layers = [layer for layer in model.layers if isinstance(layer, nn.Linear)]
    return [(layer.in_features, layer.out_features) for layer in layers]


def test_depth_counts_hidden_layers_and_width_their_units() -> None:
    hidden = MLPParams(depth=3, width=8).hidden_widths(Growth.constant)
    assert widths_of(MLP(MLPShape(2, hidden, 2))) == [(2, 8), (8, 8), (8, 8), (8, 2)]


def test_growth_doubling_makes_layers_of_2_4_8_16() -> None:
    assert MLPParams(depth=4).hidden_widths(Growth.doubling) == (2, 4, 8, 16)


def test_depth_0_is_a_linear_model() -> None:
    assert widths_of(MLP(MLPShape(2, MLPParams(depth=0).hidden_widths(Growth.constant), 1))) == [
        (2, 1)
    ]


def test_weights_come_from_the_generator_alone() -> None:
    before = torch.get_rng_state()
    first, second = drawn(), drawn()
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_dropout_draws_from_its_generator_and_keeps_the_mean() -> None:
    shape = MLPShape(n_inputs=4, hidden_widths=(2000,), n_outputs=1)
    network, x = MLPNetwork(shape, dropout=0.5), torch.ones(1, 4)
    model = network.build(torch.float32, torch.device("cpu"), seed=3)

    def dropped(seed: int) -> torch.Tensor:
        network.seed_draws(model, seed)
        out: torch.Tensor = model.train()(x)
        return out

    before = torch.get_rng_state()
    out = [dropped(seed) for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(out[0], out[1])
    assert not torch.equal(out[0], out[2])
    assert isinstance(model, MLP)
    with torch.no_grad():
        model.layers[-1].weight.fill_(1.0)  # type: ignore[operator]
        assert dropped(1).item() == pytest.approx(model.eval()(x).item(), rel=0.15)


def test_flat_parameters_are_the_modules_own() -> None:
    model = drawn()
    flat = FlatParameters(model)
    flat.values.fill_(0.5)
    assert all((p == 0.5).all() for p in model.parameters())
    model(torch.ones(4, 3)).sum().backward()
    grads = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    assert torch.equal(flat.grads, grads)
    assert grads.abs().sum() > 0


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_those_of_torchs_optimizers(optimizer: str, weight_decay: float) -> None:
    ours, theirs = drawn(dtype=torch.float64), drawn(dtype=torch.float64)
    params = MLPParams(lr=0.05, optimizer=optimizer, momentum=0.8, weight_decay=weight_decay)
    flat = FlatParameters(ours)
    step = make_optimizer(flat, params).step
    peers: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, weight_decay=weight_decay),
        "adam": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=weight_decay),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=weight_decay),
    }
    peer = peers[optimizer](theirs.parameters())
    x = torch.randn(16, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for _ in range(20):
        flat.grads.zero_()
        ours(x).square().sum().backward()
        step()
        peer.zero_grad()
        theirs(x).square().sum().backward()
        peer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_clipping_is_that_of_torch() -> None:
    model = drawn(dtype=torch.float64)
    flat = FlatParameters(model)
    model(torch.ones(4, 3, dtype=torch.float64)).sum().backward()
    before = flat.grads.clone()
    flat.clip(1e9)
    assert torch.equal(flat.grads, before)
    flat.clip(0.1)
    clipped = flat.grads.clone()
    flat.grads.copy_(before)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    torch.testing.assert_close(clipped, flat.grads)


def test_what_needs_no_gradient_is_not_trained() -> None:
    model = drawn()
    first, *rest = model.parameters()
    first.requires_grad_(False)
    before = first.clone()
    FlatParameters(model).values.fill_(0.5)
    assert torch.equal(first, before)
    assert all((p == 0.5).all() for p in rest)
    with pytest.raises(ValueError, match="MLP has no parameter that requires a gradient"):
        FlatParameters(model.requires_grad_(False))


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("clip_norm", 0.0, "a finite number greater than 0, or null"),
        ("depth", 2.5, "a whole number from 0"),
        ("depth", True, "a whole number from 0"),
        ("width", 0, "a whole number from 1"),
        ("lr", 0.0, "greater than 0"),
        ("lr", float("nan"), "greater than 0"),
        ("batch_size", 0, "a whole number from 1"),
        ("optimizer", "adamm", "one of sgd, adam, adamw"),
        ("momentum", 1.0, "from 0 to below 1"),
        ("weight_decay", -1e-3, "0 or more"),
        ("dropout", 1.0, "from 0 to below 1"),
    ],
)
def test_a_param_out_of_its_range_is_named_with_its_rule(
    name: str, value: float | str, rule: str
) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*must be .*{rule}"):
        MLPFamily().params({name: value})
