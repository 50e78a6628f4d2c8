"""Airflow finds the provider in the installed package."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk import conf, task

from stepset_airflow.decorators.distributed_train import distributed_train_task
from stepset_airflow.get_provider_info import get_provider_info

pytestmark = pytest.mark.airflow


def test_the_provider_info_is_valid_by_airflow_s_schema() -> None:
    schema = json.loads((files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_airflow_finds_the_provider() -> None:
    assert ProvidersManager().providers["stepset"].data["name"] == "stepset"


def test_airflow_finds_the_decorator() -> None:
    assert task.distributed_train is distributed_train_task


@pytest.mark.parametrize(("option", "default"), [("backend", "kubernetes"), ("log_ranks", "0")])
def test_the_configuration_section_stepset_has_defaults(option: str, default: str) -> None:
    assert conf.get("stepset", option) == default
