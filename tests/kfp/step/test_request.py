"""The request that a step submits for its job."""

from pathlib import Path

from stepset.sources import shipped_note
from stepset.spec.load import parse_job
from stepset_kfp.step.step_job import StepInputs, StepJob


def test_the_packages_that_the_steps_image_lacks_are_not_noted(tmp_path: Path) -> None:
    """The compilation of the pipeline notes them, on the machine of the pipeline's author."""
    (tmp_path / "train.py").write_text("import os, sys\nsys.path.append(os.environ['LIB'])\nimport found_nowhere\n")
    job = parse_job({"name": "job", "script": "train.py"})
    (note,) = shipped_note(StepJob(lambda: StepInputs(job, tmp_path)).request.sources)
    assert note.startswith("ships 1 file of ")
