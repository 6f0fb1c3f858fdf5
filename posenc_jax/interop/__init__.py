"""Weights, configs and tokenizers of Hugging Face models, in and out."""
