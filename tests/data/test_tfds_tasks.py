"""TFDS tasks: small datasets made on the spot as TFDS makes GLUE, read equal to the same rows as TSV."""

import json
import subprocess
import sys

import numpy as np
import pytest

from posenc_jax.data.task_files import load_split
from posenc_jax.data.tasks import TASKS, Missing
from posenc_jax.data.tfds_tasks import SOURCES
from posenc_jax.errors import UsageError, UserError

BUILD = """
import json, sys
import numpy as np
import tensorflow_datasets as tfds

CONFIGS = json.loads(sys.argv[2])

class Glue(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("2.0.0")
    MODULE_PATH = "."
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name) for name in CONFIGS]
    def _info(self):
        config = CONFIGS[self.builder_config.name]
        features = {name: tfds.features.Text() for name in config["texts"]}
        names = config["names"]
        features |= {"label": tfds.features.ClassLabel(names=names) if names else np.float32, "idx": np.int32}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))
    def _split_generators(self, manager):
        splits = CONFIGS[self.builder_config.name]["splits"]
        return {name: self._generate_examples(rows) for name, rows in splits.items()}
    def _generate_examples(self, rows):
        for idx, (texts, label) in enumerate(rows):
            names = CONFIGS[self.builder_config.name]["texts"]
            yield idx, {**dict(zip(names, texts)), "label": label, "idx": idx}

for name in CONFIGS:
    Glue(config=name, data_dir=sys.argv[1], file_format="array_record").download_and_prepare()
assert "tensorflow" not in sys.modules
"""

ROWS = 23
ODD = ["naïve “quotes”", '"stray', " spaces  kept ", "next\u2028line", "Ünïcode 東京"]


def texts(n: int, count: int) -> list[str]:
    return [f"{ODD[(n + place) % len(ODD)]} {n} {place}" for place in range(count)]


def rows(task: str, labels: list) -> list:
    return [(texts(n, len(TASKS[task].texts)), labels[n % len(labels)]) for n in range(ROWS)]


def tsv(task: str, split: str, lines: list) -> str:
    """The rows as the GLUE file has them: `label` the file's string, or None where the file has no labels."""
    spec = TASKS[task]
    if spec.columns and split != "test":
        return "".join(f"src\t{label}\t\t{row[0]}\n" for row, label in lines)
    head = ["index", *spec.texts] + ([spec.label] if lines[0][1] is not None else [])
    body = [[str(n), *row] + ([label] if label is not None else []) for n, (row, label) in enumerate(lines)]
    return "".join("\t".join(line) + "\n" for line in [head, *body])


LABELS = {
    "CoLA": (["1", "0", "1"], [1, 0, 1], ["unacceptable", "acceptable"]),
    "RTE": (["entailment", "not_entailment"], [0, 1], ["entailment", "not_entailment"]),
    "MNLI": (
        ["neutral", "entailment", "contradiction", "neutral"],
        [1, 0, 2, 1],
        ["entailment", "neutral", "contradiction"],
    ),
    "STS-B": (["3.8", "0.000", "5.000", "2.3"], [3.8, 0.0, 5.0, 2.3], []),
}
"""Labels as the TSV has them, as TFDS numbers them, and TFDS's names."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same rows as GLUE files and as TFDS datasets, and beside them some that are odd."""
    glue, data_dir = tmp_path_factory.mktemp("glue"), tmp_path_factory.mktemp("tfds")
    configs = {}
    for task, (strings, numbers, names) in LABELS.items():
        splits = {}
        for split in TASKS[task].splits:
            test = split in TASKS[task].test_splits
            path = glue / task / f"{split}.tsv"
            path.parent.mkdir(exist_ok=True)
            path.write_text(tsv(task, split, rows(task, [None] if test else strings)), "utf-8")
            splits[split.replace("dev", "validation")] = rows(task, [-1] if test else numbers)
        configs[SOURCES[task].config] = {"texts": SOURCES[task].texts, "names": names, "splits": splits}
    odd = {"train": rows("CoLA", [0, 1])}
    configs["sst2"] = {"texts": ["sentence"], "names": ["bad", "good"], "splits": odd}
    configs["qnli"] = {"texts": ["question"], "names": ["entailment", "not_entailment"], "splits": odd}
    configs["mrpc"] = {
        "texts": ["sentence1", "sentence2"],
        "names": ["not_equivalent", "equivalent"],
        "splits": {"train": rows("MRPC", [-1, 1])},
    }
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(data_dir), json.dumps(configs)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return glue, data_dir


@pytest.mark.parametrize(("task", "split"), [(task, split) for task in LABELS for split in TASKS[task].splits])
def test_a_tfds_split_equals_the_tsv_file(folders, task, split):
    glue, data_dir = folders
    ours, theirs = (load_split(place, TASKS[task], split) for place in (glue, f"tfds:{data_dir}"))
    assert theirs.texts_a == ours.texts_a and theirs.texts_b == ours.texts_b
    assert theirs.index == ours.index == [str(n) for n in range(ROWS)]
    if split in TASKS[task].test_splits:
        assert theirs.labels is None and ours.labels is None
    else:
        assert theirs.labels.dtype == ours.labels.dtype
        np.testing.assert_array_equal(theirs.labels, ours.labels)
    assert theirs.digest() == ours.digest()


def test_the_environment_names_the_folder(folders, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(folders[1]))
    assert len(load_split("tfds", TASKS["RTE"], "dev")) == ROWS


@pytest.mark.parametrize(
    ("task", "split", "says"),
    [
        ("QQP", "dev", ["no dataset glue/qqp", "tfds build glue --config qqp --file_format array_record"]),
        ("SST-2", "train", ["['bad', 'good']", "'negative', 'positive'"]),
        ("SST-2", "dev", ["no split validation", "it has train"]),
        ("QNLI", "train", ["no feature 'sentence'", "'question'"]),
        ("MRPC", "train", ["example 0 of split train has no label"]),
    ],
)
def test_what_is_wrong_with_a_dataset_is_told(folders, task, split, says):
    with pytest.raises(UserError) as caught:
        load_split(f"tfds:{folders[1]}", TASKS[task], split)
    assert isinstance(caught.value, Missing) == (says[0].startswith("no dataset") or says[0].startswith("no split"))
    for part in says:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_probes_are_not_in_tfds(folders):
    with pytest.raises(UsageError, match="TFDS has no task order"):
        load_split(f"tfds:{folders[1]}", TASKS["order"], "dev")


def test_a_dataset_without_its_records_is_told_so(folders, tmp_path):
    place = tmp_path / "glue" / "rte" / "2.0.0"
    place.mkdir(parents=True)
    for name in ("dataset_info.json", "features.json"):
        source = folders[1] / "glue" / "rte" / "2.0.0" / name
        (place / name).write_bytes(source.read_bytes())
    with pytest.raises(UserError, match="cannot be read"):
        load_split(f"tfds:{tmp_path}", TASKS["RTE"], "dev")
    (place / "dataset_info.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        load_split(f"tfds:{tmp_path}", TASKS["RTE"], "dev")


def test_the_names_are_those_of_the_installed_tfds():
    glue = pytest.importorskip("tensorflow_datasets.text.glue")
    configs = {config.name: config for config in glue.Glue.BUILDER_CONFIGS}
    for name, source in SOURCES.items():
        config = configs[source.config]
        assert set(source.texts) == set(config.text_features)
        assert sorted(source.labels) == sorted(config.label_classes or ())
        assert len(source.labels) == len(TASKS[name].labels)
