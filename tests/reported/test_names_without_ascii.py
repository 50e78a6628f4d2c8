"""Labels, annotations and names that stepset derives from a user's text are valid for every text.

The text may have no ASCII letter or digit at all, such as the ID of a DAG in Chinese. The label of
KubernetesPodOperator is then a hyphen and a hash, which Kubernetes rejects.
"""

from __future__ import annotations

import re
import string
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.backends.airflow_tasks import is_of_task, task_selectors
from stepset.rendering import render
from stepset.safe_names import label_value, path_segment, slug
from stepset.spec import parse_job
from stepset.targets.kinds import TARGETS
from stepset.targets.rbac import Account, rbac
from tests.targets.making import request, workload

# apimachinery v1.36 pkg/util/validation/validation.go: IsValidLabelValue, IsDNS1035Label
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

TEXTS = (
    "训练",
    "模型",
    "обучение",
    "تدريب",
    "é",
    "🚀",
    "---",
    "_",
    ".",
    " ",
    "\n",
    "-训练-",
    "训练.train",
    "train\n",
    "ﬁ",
    "ⅷ",
    "٣",
    "\udcff",
    "a" * 64,
    "训" * 300,
)
ANY_TEXT = st.one_of(
    st.text(st.characters()),  # with lone surrogates
    st.text(st.sampled_from(string.punctuation + " \n训é0aZ"), max_size=90),
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_without_ascii_letters_becomes_a_label_value(text: str) -> None:
    value = label_value(text)
    assert value and LABEL_VALUE.fullmatch(value)


@given(ANY_TEXT)
def test_any_text_becomes_a_label_value(text: str) -> None:
    assert LABEL_VALUE.fullmatch(label_value(text))


@given(ANY_TEXT)
def test_a_label_value_stays_as_it_is(text: str) -> None:
    value = label_value(text)
    assert label_value(value) == value
    assert (value == text) == bool(LABEL_VALUE.fullmatch(text))


@given(st.lists(ANY_TEXT, min_size=2, max_size=2, unique=True))
def test_different_texts_become_different_label_values(texts: list[str]) -> None:
    one, other = map(label_value, texts)
    assert one != other


@given(ANY_TEXT, st.integers(1, 63))
def test_any_text_becomes_a_name(text: str, limit: int) -> None:
    name = slug(text, limit)
    assert DNS_1035.fullmatch(name) and len(name) <= limit


def test_names_in_other_alphabets_become_different_names() -> None:
    assert len({slug(text) for text in TEXTS[:4]}) == 4
    assert parse_job({"script": "训练.py"}).name != parse_job({"script": "模型.py"}).name


@given(ANY_TEXT)
def test_any_text_becomes_a_part_of_the_name_of_a_role_binding(text: str) -> None:
    part = path_segment(text)
    assert not set(part) & set("/%:")
    part.encode()


@given(st.text(min_size=1), st.sampled_from(["ServiceAccount", "User", "Group"]))
def test_every_account_has_valid_bindings(name: str, kind: Literal["ServiceAccount", "User", "Group"]) -> None:
    for each in rbac(accounts=[Account(name, kind=kind)], bindings_only=True):
        assert all(map(LABEL_VALUE.fullmatch, each["metadata"]["labels"].values()))
        assert not set(each["metadata"]["name"]) & set("/%")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", [text for text in TEXTS if text.strip() and "\udcff" not in text])
def test_a_job_with_such_a_script_and_such_labels_is_accepted_by_every_target(text: str, target: str) -> None:
    made: list[Any] = render(request(script=f"{text}.py", labels={"dag_id": label_value(text)}), target)
    metadata = workload(made)["metadata"]
    assert DNS_1035.fullmatch(metadata["name"])
    assert all(map(LABEL_VALUE.fullmatch, metadata["labels"].values()))


@pytest.mark.parametrize("text", [text for text in TEXTS if "." not in text and "]" not in text])
def test_the_runs_of_such_a_task_are_found_by_its_ids(text: str) -> None:
    labels = {"dag_id": label_value(text), "task_id": label_value("模型")}
    assert is_of_task(labels, f"{text}.模型")
    assert not is_of_task(labels, f"{text}.x")
    assert f"dag_id={labels['dag_id']},task_id={labels['task_id']}" in task_selectors(f"{text}.模型")
