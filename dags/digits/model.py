"""Reads the handwritten digits, defines the network that classifies them, and evaluates the network.

train.py uses this module in every rank. Tasks of the DAGs digits_retrain, digits_sweep, digits_until_good and
digits_on_new_data also use it.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

Pixels = torch.Tensor  # (images, 1, 8, 8), 0 to 1
Labels = torch.Tensor  # (images,), 0 to 9


def write_digits(path: Path) -> dict[str, int]:
    """Writes scikit-learn's digits to a file, split into 1,437 for training and 360 for testing. Returns the counts.

    Every call splits the digits in the same way.
    """
    from sklearn.datasets import load_digits  # imported here because the ranks do not need scikit-learn
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    pixels = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    train_x, test_x, train_y, test_y = train_test_split(pixels, labels, test_size=360, stratify=labels, random_state=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y)
    return {"train": len(train_y), "test": len(test_y)}


def read_digits(path: Path, part: str) -> tuple[Pixels, Labels]:
    """Returns the images and labels of one part of the digits. `part` is `train` or `test`."""
    with np.load(path) as file:
        return torch.from_numpy(file[f"{part}_x"]), torch.from_numpy(file[f"{part}_y"])


def new_model() -> nn.Module:
    """Returns a network of two convolutions and two linear layers for images of 8 x 8 pixels. It has 71,754 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def load_model(checkpoint: Path) -> nn.Module:
    """Returns the network with the weights of a checkpoint that train.py has written."""
    model = new_model()
    model.load_state_dict(torch.load(checkpoint, map_location="cpu")["model"])
    return model


@torch.no_grad()
def score(model: nn.Module, pixels: Pixels, labels: Labels) -> dict[str, float]:
    """Returns the accuracy of the model (0 to 1) and its mean cross-entropy."""
    logits = model(pixels)
    loss = nn.functional.cross_entropy(logits, labels)
    accuracy = (logits.argmax(1) == labels).float().mean()
    return {"accuracy": round(accuracy.item(), 4), "loss": round(loss.item(), 4)}
