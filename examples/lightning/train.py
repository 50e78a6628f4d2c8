"""Train on scikit-learn's digits with Lightning.

stepset run examples/lightning/train.py --nodes 2 --procs-per-node 2
"""

import argparse
import json
import os
from importlib.util import find_spec
from pathlib import Path

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# scikit-learn's digits: 1,797 rows of 64 pixels and a label.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"


class Digits(lightning.LightningModule):
    """A small network that classifies digits."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.epochs = epochs
        self.first_epoch = None
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def on_train_start(self) -> None:
        self.first_epoch = self.current_epoch

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        self.loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        return self.loss

    def on_train_epoch_end(self) -> None:
        if self.global_rank == 0:
            done = self.current_epoch + 1
            progress = {"step": done, "progress": done / self.epochs, "metrics": {"loss": self.loss.item()}}
            print(json.dumps({"stepset": progress}), flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    digits = torch.tensor(np.loadtxt(DIGITS, delimiter=","), dtype=torch.float32)
    pixels, labels = digits[:, :64] / 16, digits[:, 64].long()

    checkpoint_dir = os.environ.get("STEPSET_CHECKPOINT_DIR")
    trainer = lightning.Trainer(
        num_nodes=int(os.environ["STEPSET_NUM_NODES"]),  # without these two, each rank trains alone
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=args.epochs,
        callbacks=[ModelCheckpoint(checkpoint_dir, save_last=True, save_top_k=0)] if checkpoint_dir else [],
        enable_checkpointing=bool(checkpoint_dir),
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    if trainer.world_size != int(os.environ["WORLD_SIZE"]):
        raise SystemExit("this rank trains alone; pass num_nodes and devices to the Trainer")
    module = Digits(args.epochs)
    loader = DataLoader(TensorDataset(pixels[:1500], labels[:1500]), batch_size=32, shuffle=True)
    resume_from = os.environ.get("STEPSET_RESUME_FROM")
    trainer.fit(module, loader, ckpt_path=f"{resume_from}/last.ckpt" if resume_from else None)

    # Every rank adds rank + 1. The sum shows whether all ranks have trained together.
    rank_sum = trainer.strategy.reduce(torch.tensor(trainer.global_rank + 1.0), reduce_op="sum")
    if trainer.is_global_zero:
        guess = module.model(pixels[1500:].to(module.device)).argmax(1).cpu()
        result = {
            "world_size": trainer.world_size,
            "rank_sum": int(rank_sum),
            "first_epoch": module.first_epoch,
            "accuracy": round((guess == labels[1500:]).float().mean().item(), 4),
        }
        Path(os.environ["STEPSET_RESULT_FILE"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
