import re

import pytest

from posenc_jax.config_files import shipped_variants
from posenc_jax.evaluation.variants import COMPATIBILITY_SOURCES, CONVOLUTION_SOURCES, tables
from posenc_jax.positions import PARTS


@pytest.fixture(scope="module")
def all_tables():
    return tables()


def column(table, name):
    return {row[0]: row[list(table.columns).index(name)] for row in table.rows}


def test_every_part_compatibility_and_mixer_is_there_with_its_source(all_tables):
    positions, compatibilities, mixers = all_tables
    assert {"none", *PARTS} <= column(positions, "source").keys()
    assert set(COMPATIBILITY_SOURCES) <= column(compatibilities, "source").keys()
    assert len(mixers.rows) >= 1 + len(CONVOLUTION_SOURCES)
    for table in all_tables:
        assert all(re.search(r"\d{4}|ConvBERT|bag", source) for source in column(table, "source").values())


def test_every_shipped_variant_is_named_in_every_table(all_tables):
    for table in all_tables:
        used = " ".join(column(table, "configs").values())
        for spec in shipped_variants():
            file, _, variant = spec.removeprefix("configs/").partition(":")
            counted = re.search(rf"{re.escape(file)} \(\d+ variants\)", used)
            assert counted or variant in re.split(r"[ :|]", used), spec


def test_parameters_are_the_specs(all_tables):
    """tupe.md 1.1 (over BERT-A: +1,183,488, +396 more), ddrp_mth_and_symmetric.md 1.2 and 2.2."""
    positions, compatibilities, _ = all_tables
    added = {name: int(cell.replace(",", "")) for name, cell in column(positions, "parameters").items()}
    assert added["tupe, untie_cls"] - added["learned"] == 1_183_488
    assert added["tupe+t5, untie_cls"] - added["tupe, untie_cls"] == 396
    assert (added["shaw"], added["ddrp"]) == (197_376, 100_608)
    saved = {name: int(cell.replace(",", "")) for name, cell in column(compatibilities, "parameters").items()}
    assert saved["symmetric"] == 102_395_136 - 109_482_240
    assert saved["pairwise"] == 102_984_960 - 109_482_240
    assert saved["dot_product, matched_init"] == 0
