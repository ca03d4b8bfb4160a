"""Images from a folder, one subfolder per class, for a small ResNet: Pillow reads, torch.nn learns.

The folder, 480 drawings of discs, squares and triangles, is made at the first call, below the
system's temporary files. `folder` gives Datasets; a training image is mirrored at random, and what
is drawn follows from the trial's seed, its epoch and the batch. Rows of a Dataset are loaded batch
by batch, by as many processes as `training.loader_workers` says (0: by the trial's own), and its
numbers do not depend on it. For your own images change `FOLDER`, and take the drawing out.

$ python -m automl data=python data.source=images_from_a_folder.py:folder \
    model=python model.target=images_from_a_folder.py:resnet study.name=shapes study.n_trials=4 \
    study.metric=val_error training.epochs=6 training.schedule=onecycle \
    space='{channels: {choices: [8, 12]}, lr: {low: 3e-3, high: 3e-2, log: true}, batch_size: 20}'
"""

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import Dataset

FOLDER = Path(tempfile.gettempdir(), "automl-recipe-shapes")
CLASSES = ("disc", "square", "triangle")
SIDE = 24


def draw_folder() -> None:
    """Two processes may draw at once: the first to be done gives the folder its name."""
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as scratch:
        draw = random.Random(0)
        for part, n_images in (("train", 120), ("validation", 40)):
            for name in CLASSES:
                Path(scratch, "all", part, name).mkdir(parents=True)
                for number in range(n_images):
                    path = Path(scratch, "all", part, name, f"{number:03}.png")
                    draw_shape(name, draw).save(path)
        try:
            Path(scratch, "all").rename(FOLDER)
        except OSError:
            if not FOLDER.is_dir():
                raise


def draw_shape(name: str, draw: random.Random) -> Image.Image:
    paper = tuple(draw.randrange(90) for _ in range(3))
    ink = tuple(draw.randrange(160, 256) for _ in range(3))
    image = Image.new("RGB", (SIDE, SIDE), paper)
    size = draw.randint(8, 16)
    left, top = (draw.randint(1, SIDE - size - 1) for _ in range(2))
    right, bottom = left + size, top + size
    pen = ImageDraw.Draw(image)
    if name == "disc":
        pen.ellipse((left, top, right, bottom), fill=ink)
    elif name == "square":
        pen.rectangle((left, top, right, bottom), fill=ink)
    else:
        pen.polygon([(left, bottom), (right, bottom), ((left + right) // 2, top)], fill=ink)
    return image


class Images(Dataset[Any]):
    """Files and their classes, by number."""

    def __init__(self, folder: Path, *, mirrors: bool) -> None:
        self.classes = sorted(path.name for path in folder.iterdir())
        self.files = [
            (path, number)
            for number, name in enumerate(self.classes)
            for path in sorted((folder / name).glob("*.png"))
        ]
        self.mirrors = mirrors

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, number = self.files[index]
        with Image.open(path) as image:
            pixels = torch.from_numpy(np.array(image.convert("RGB")))
        x = pixels.permute(2, 0, 1).float() / 127.5 - 1
        if self.mirrors and torch.rand(()) < 0.5:
            x = x.flip(2)
        return x, number


def folder() -> dict[str, Images]:
    """What `data.source` names: called without arguments, in every process that trains."""
    if not FOLDER.is_dir():
        draw_folder()
    return {
        "train": Images(FOLDER / "train", mirrors=True),
        "validation": Images(FOLDER / "validation", mirrors=False),
    }


class Block(nn.Module):
    """Two convolutions beside a shortcut (He et al., 2015); half as wide and high."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.shortcut = nn.Conv2d(n_in, n_out, 1, stride=2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.path(x) + self.shortcut(x))


def resnet(n_inputs: tuple[int, int, int], n_outputs: int, channels: int = 8) -> nn.Module:
    """`n_inputs` is the shape of an image, `n_outputs` the number of classes."""
    return nn.Sequential(
        nn.Conv2d(n_inputs[0], channels, 3, padding=1),
        nn.ReLU(),
        Block(channels, channels),
        Block(channels, 2 * channels),
        Block(2 * channels, 4 * channels),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * channels, n_outputs),
    )
