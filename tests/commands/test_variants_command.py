from posenc_jax.__main__ import main


def test_variants_prints_three_tables(capsys):
    assert main(["variants", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n| --- |") == 3
    for name in ("tupe+t5, untie_cls", "deberta", "pairwise", "mixed, span_dynamic", "symmetric.py:symmetric"):
        assert name in out
