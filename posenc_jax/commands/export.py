"""`export`: a workdir -> a folder that other libraries load."""

import argparse

from posenc_jax.errors import DONE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax export",
        description="Writes a workdir's newest checkpoint as a BERT, RoBERTa, ELECTRA or ConvBERT that transformers "
        "loads. Symmetric and pairwise models come out as plain BERT, computing the same.",
    )
    parser.add_argument("format", choices=("hf",), help="hf: Hugging Face, config.json and model.safetensors")
    parser.add_argument("--workdir", required=True, metavar="RUN", help="a workdir of `pretrain` or `import`")
    parser.add_argument("--out", required=True, metavar="DIR", help="gets the model; must be new or empty")
    parser.add_argument("--generator", action="store_true", help="of replaced-token detection the generator")
    args = parser.parse_args(argv)

    from posenc_jax.interop.exporting import export_hf

    exported = export_hf(args.workdir, args.out, args.generator)
    for note in exported.notes:
        print(f"note: {note}")
    print(f"step {exported.step} is in {args.out}, for {exported.class_name} of transformers")
    return DONE
