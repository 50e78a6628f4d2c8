"""docs/api/stepset_kfp.txt and docs/reference record the public API of the components."""

from __future__ import annotations

from tools.api_pages import main as pages_main
from tools.api_snapshot import main

import stepset_kfp


def test_the_record_of_stepset_kfp_is_current() -> None:
    assert main(["--check", "--package", "stepset_kfp"]) == 0


def test_the_page_of_stepset_kfp_is_current() -> None:
    assert pages_main(["--check", "--package", "stepset_kfp"]) == 0


def test_dir_lists_all_public_names() -> None:
    assert dir(stepset_kfp) == sorted(stepset_kfp.__all__)
