"""What ends a survey, what it looks at, and when it says that it cannot know."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import automl
from automl.measure.survey.survey_result import InconclusiveSurvey, SurveyEndReason, SurveyResult
from automl.measure.survey.survey_run import survey_objective
from tests.measure.survey.way import BATCH, N_INPUTS, X, Y, batches, network, step
from tests.models.conftest import make_spec

Objective = Callable[[automl.TrialContext], object]
MIB = 2**20


@pytest.fixture
def surveyed(tmp_path: Path) -> Callable[[Objective], SurveyResult | InconclusiveSurvey]:
    return lambda objective: survey_objective(objective, make_spec(tmp_path), "val_loss")


Survey_ = Callable[[Objective], SurveyResult | InconclusiveSurvey]


def test_it_ends_with_the_first_report_of_the_metric_after_three_steps(surveyed: Survey_) -> None:
    reports = []

    def objective(trial: automl.TrialContext) -> None:
        net = network().to(trial.device)
        optimizer = torch.optim.SGD(net.parameters())
        for i in range(100):
            x, y = next(batches())
            step(net, optimizer, x.to(trial.device), y.to(trial.device))
            reports.append(i)
            trial.report(i, {"train_loss": 1.0} if i % 4 else {"val_loss": 1.0})

    answer = surveyed(objective)
    assert isinstance(answer, SurveyResult)
    assert (answer.ended, answer.n_steps) == (SurveyEndReason.REPORTED, 5)
    assert reports == [0, 1, 2, 3, 4]


def test_who_swallows_the_end_meets_it_again(surveyed: Survey_) -> None:
    def objective(trial: automl.TrialContext) -> None:
        net = network().to(trial.device)
        optimizer = torch.optim.SGD(net.parameters())
        for i in range(10_000):
            try:
                x, y = next(batches())
                step(net, optimizer, x.to(trial.device), y.to(trial.device))
                trial.report(i, {"val_loss": 1.0})
            except BaseException:  # noqa: BLE001  what users write
                continue

    answer = surveyed(objective)
    assert isinstance(answer, SurveyResult)
    assert answer.n_steps == 3


def test_one_that_only_returns_its_value_ends_after_a_few_passes(surveyed: Survey_) -> None:
    n_passes = []

    def objective(trial: automl.TrialContext) -> float:
        net = network().to(trial.device)
        optimizer = torch.optim.SGD(net.parameters())
        loader = DataLoader(TensorDataset(X, Y), batch_size=BATCH)
        for epoch in range(100):
            n_passes.append(epoch)
            for x, y in loader:
                step(net, optimizer, x.to(trial.device), y.to(trial.device))
            with torch.no_grad():
                net(X.to(trial.device))
        return 0.5

    answer = surveyed(objective)
    assert isinstance(answer, SurveyResult)
    assert answer.ended is SurveyEndReason.PASSED
    assert len(n_passes) == 4


def test_the_validation_is_looked_at_and_the_largest_batch(surveyed: Survey_) -> None:
    read: list[int] = []

    class Rows(TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            read.append(int(index))
            return super().__getitem__(index)  # type: ignore[no-untyped-call]

    def objective(trial: automl.TrialContext) -> None:
        net = network().to(trial.device)
        optimizer = torch.optim.SGD(net.parameters())
        sizes = [2] * 60 + [100] + [2] * 10 + [1]
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        rows = [list(range(a, a + n)) for a, n in zip(starts, sizes, strict=True)]
        for x, y in DataLoader(Rows(X, Y), batch_sampler=rows):
            step(net, optimizer, x.to(trial.device), y.to(trial.device))
        with torch.no_grad():
            net(torch.zeros(20 * MIB // 4 // 64, N_INPUTS, device=trial.device))
        trial.report(0, {"val_loss": 1.0})

    answer = surveyed(objective)
    assert isinstance(answer, SurveyResult)
    assert answer.allocated_bytes > 100 * MIB, "the validation's 20 MiB and four times that"
    assert answer.n_steps == 5, "three, the largest and the last"
    assert len(read) == 3 * 2 + 100 + 1


def test_a_size_that_is_read_from_the_device_is_the_true_one(surveyed: Survey_) -> None:
    def objective(trial: automl.TrialContext) -> None:
        lengths = torch.tensor([3, MIB, 5]).to(trial.device)
        torch.zeros(int(lengths.max()), device=trial.device)
        keep = torch.arange(10, device=trial.device) > 7
        assert keep.sum().item() == 2
        assert keep.nonzero().shape == (2, 1)
        assert torch.rand(10, 3).to(trial.device)[keep].shape == (2, 3)
        lengths[0] = 7
        assert lengths.tolist() == [7, MIB, 5]

    answer = surveyed(objective)
    assert isinstance(answer, SurveyResult), answer
    assert answer.allocated_bytes > 4 * MIB


def test_a_size_that_nobody_knows_is_the_largest_it_can_be(surveyed: Survey_) -> None:
    def objective(trial: automl.TrialContext) -> None:
        scores = torch.rand(MIB).to(trial.device)
        n = int((scores > 0.5).sum())
        torch.zeros(n, device=trial.device)
        assert scores[scores > 0.5].shape == (MIB,)

    answer = surveyed(objective)
    assert isinstance(answer, SurveyResult), answer
    assert answer.allocated_bytes >= 8 * MIB


def test_an_assertion_of_what_is_not_computed_holds_at_the_second_try(surveyed: Survey_) -> None:
    def objective(trial: automl.TrialContext) -> None:
        x = torch.rand(10).to(trial.device)
        assert (x * 2 > x).all()

    assert isinstance(surveyed(objective), SurveyResult)


def test_gradients_of_the_host_flow_through_the_device_and_back(surveyed: Survey_) -> None:
    def objective(trial: automl.TrialContext) -> None:
        weights = torch.rand(100, requires_grad=True)
        loss = (weights.to(trial.device) * 2).cpu().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        assert weights.grad is not None
        assert weights.grad.device.type == "cpu"

    assert isinstance(surveyed(objective), SurveyResult)


def test_what_autocast_computes_in_float32_on_cuda_counts_as_that(surveyed: Survey_) -> None:
    def objective(dtype: torch.dtype) -> Objective:
        def run(trial: automl.TrialContext) -> None:
            x = torch.rand(MIB, device=trial.device).to(dtype)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                assert F.softmax(x, 0).dtype is torch.float32

        return run

    assert isinstance(surveyed(objective(torch.bfloat16)), SurveyResult)


def test_a_state_that_is_loaded_to_the_device_is_there(surveyed: Survey_, tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "net.pt")

    def objective(trial: automl.TrialContext) -> None:
        state = torch.load(tmp_path / "net.pt", map_location=trial.device, weights_only=True)
        assert {t.device.type for t in state.values()} == {"cuda"}
        network().to(trial.device).load_state_dict(state)

    answer = surveyed(objective)
    assert isinstance(answer, SurveyResult), answer
    assert answer.allocated_bytes > 2 * 76_840, "the state beside the network"


def test_torch_is_as_it_was_afterwards(surveyed: Survey_) -> None:
    assert isinstance(surveyed(_small), SurveyResult)
    assert not torch.cuda.is_available()
    net = network()
    parameter = net[0].weight
    step(net, torch.optim.Adam(net.parameters()), *next(batches()))
    assert type(parameter) is nn.Parameter
    assert len(list(DataLoader(TensorDataset(X), batch_size=1))) == len(X)


def _small(trial: automl.TrialContext) -> None:
    _step_with(torch.optim.SGD, trial, n=4)


def _step_with(kind: Any, trial: automl.TrialContext, n: int) -> None:
    net = network().to(trial.device)
    optimizer = kind(net.parameters())
    for x, y in list(batches())[:n]:
        step(net, optimizer, x.to(trial.device), y.to(trial.device))


# --- unknown, with the reason -------------------------------------------------------------------


def nothing_on_the_gpu(trial: automl.TrialContext) -> None:
    network()(X)


def half_on_the_host(trial: automl.TrialContext) -> None:
    network().to(trial.device)(X)


def asks_for_free_memory(trial: automl.TrialContext) -> None:
    torch.cuda.mem_get_info()
    _small(trial)


def moves_in_a_thread(trial: automl.TrialContext) -> None:
    _small(trial)
    threading.excepthook = lambda args: None
    thread = threading.Thread(target=lambda: X.to("cuda"))
    thread.start()
    thread.join()


def computes_in_a_thread(trial: automl.TrialContext) -> None:
    net = network().to(trial.device)
    x = X.to(trial.device)
    thread = threading.Thread(target=lambda: net(x))
    thread.start()
    thread.join()


def makes_sparse_tensors(trial: automl.TrialContext) -> None:
    table = nn.Embedding(100, 8, sparse=True).to(trial.device)
    optimizer = torch.optim.SGD(table.parameters())
    for _ in range(3):
        table(Y.to(trial.device)).sum().backward()
        optimizer.step()


def starts_a_process(trial: automl.TrialContext) -> None:
    from multiprocessing import get_context

    process = get_context("fork").Process(target=lambda: None)
    process.start()
    process.join()
    _small(trial)


def steps_one_of_two(trial: automl.TrialContext) -> None:
    kept = torch.optim.Adam(network().to(trial.device).parameters())
    _small(trial)
    assert kept


def steps_once(trial: automl.TrialContext) -> None:
    _step_with(torch.optim.Adam, trial, n=1)


def sizes_nobody_knows(trial: automl.TrialContext) -> None:
    x = torch.rand(10).to(trial.device)
    x.repeat_interleave(x.argsort())


def raises(trial: automl.TrialContext) -> None:
    raise ValueError("the rows\nare odd")


@pytest.mark.parametrize(
    ("objective", "reason"),
    [
        (nothing_on_the_gpu, "it put nothing on the GPU"),
        (half_on_the_host, "RuntimeError: Expected all tensors to be on the same device"),
        (asks_for_free_memory, "it asks how much memory is free"),
        (moves_in_a_thread, "it asked CUDA for something that a survey does not see"),
        (computes_in_a_thread, "it computes on the GPU in a thread of its own"),
        (makes_sparse_tensors, "it makes sparse tensors"),
        (starts_a_process, "it starts processes, whose memory a survey does not see"),
        (steps_one_of_two, "the optimizer Adam was seen to take fewer than two steps"),
        (steps_once, "the optimizer Adam was seen to take fewer than two steps"),
        (sizes_nobody_knows, "NotImplementedError: aten::repeat_interleave: the size"),
        (raises, "ValueError: the rows are odd"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_it_cannot_vouch_for_is_unknown(
    surveyed: Survey_, objective: Objective, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    answer = surveyed(objective)
    assert isinstance(answer, InconclusiveSurvey)
    assert answer.reason.startswith(reason)
