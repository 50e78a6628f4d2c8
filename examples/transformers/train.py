"""Train on scikit-learn's digits with the Trainer of Hugging Face Transformers.

stepset run examples/transformers/train.py --nodes 2 --procs-per-node 2
"""

import argparse
import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

# scikit-learn's digits: 1,797 rows of 64 pixels and a label.
DIGITS = Path(find_spec("sklearn").origin).with_name("datasets") / "data/digits.csv.gz"


class Digits(nn.Module):
    """A small network that classifies digits. It returns the loss, because the Trainer expects this."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.layers(pixels)
        return {"logits": logits} if labels is None else {"loss": nn.functional.cross_entropy(logits, labels)}


class Progress(TrainerCallback):
    """Prints the progress for stepset, and stores the number of the first epoch."""

    first_epoch = 0

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        self.first_epoch = round(state.epoch or 0)

    def on_epoch_end(self, args, state, control, **kwargs) -> None:
        if state.is_world_process_zero:
            done = round(state.epoch)
            print(json.dumps({"stepset": {"step": done, "progress": done / args.num_train_epochs}}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    digits = torch.tensor(np.loadtxt(DIGITS, delimiter=","), dtype=torch.float32)
    rows = [{"pixels": row[:64] / 16, "labels": row[64].long()} for row in digits]

    checkpoint_dir = os.environ.get("STEPSET_CHECKPOINT_DIR")
    arguments = TrainingArguments(
        output_dir=checkpoint_dir or "output",
        save_strategy="epoch" if checkpoint_dir else "no",
        num_train_epochs=args.epochs,
        per_device_train_batch_size=32,
        learning_rate=0.01,
        use_cpu=not torch.cuda.is_available(),  # without GPUs; otherwise each rank trains alone
        disable_tqdm=True,
        report_to="none",
    )
    progress = Progress()
    trainer = Trainer(Digits(), arguments, train_dataset=rows[:1500], callbacks=[progress])
    if arguments.world_size != int(os.environ["WORLD_SIZE"]):
        raise SystemExit("this rank trains alone; on CPUs pass use_cpu=True to TrainingArguments")
    resume_from = os.environ.get("STEPSET_RESUME_FROM")
    trainer.train(resume_from_checkpoint=get_last_checkpoint(resume_from) if resume_from else None)

    # Every rank adds rank + 1. The sum shows whether all ranks have trained together.
    accelerator = trainer.accelerator
    rank_sum = accelerator.reduce(torch.tensor(accelerator.process_index + 1, device=accelerator.device))
    if trainer.is_world_process_zero():
        model = accelerator.unwrap_model(trainer.model)
        guess = model(digits[1500:, :64].to(accelerator.device) / 16)["logits"].argmax(1).cpu()
        result = {
            "world_size": accelerator.num_processes,
            "rank_sum": int(rank_sum),
            "first_epoch": progress.first_epoch,
            "accuracy": round((guess == digits[1500:, 64].long()).float().mean().item(), 4),
        }
        Path(os.environ["STEPSET_RESULT_FILE"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
