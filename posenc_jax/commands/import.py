"""`import`: a model from elsewhere -> a workdir."""

import argparse

from posenc_jax.errors import DONE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m posenc_jax import",
        description="Makes a workdir of a BERT, RoBERTa, ELECTRA or ConvBERT of Hugging Face, for `glue` and `export`. "
        "The model is read from a folder; nothing is downloaded.",
    )
    parser.add_argument("format", choices=("hf",), help="hf: Hugging Face, safetensors or old PyTorch files")
    parser.add_argument("path", metavar="PATH", help="folder with config.json, the weights and the tokenizer")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="gets the model; must be new or empty")
    parser.add_argument("--tokenizer", metavar="PATH", help="folder or file of the tokenizer, where PATH has none")
    args = parser.parse_args(argv)

    from posenc_jax.interop.importing import import_hf
    from posenc_jax.training.state import count_parameters

    imported = import_hf(args.path, args.workdir, args.tokenizer)
    model, heads = imported.model, sorted(imported.params.keys() - {"encoder"})
    print(
        f"{imported.family.label}: {model.layers} layers x {model.width}, {model.vocab_size:,} words, "
        f"{count_parameters(imported.params):,} parameters; beside the encoder: {', '.join(heads) or 'nothing'}"
    )
    if model.mixer == "mixed":
        print("model.convolution.mask=False, as these weights were trained: padding leaks into words nearby")
    if imported.pieces < model.vocab_size:
        print(f"the tokenizer has {imported.pieces:,} pieces; the words beyond are never read")
    print(f"everything is in {args.workdir}")
    return DONE
