"""Pallas kernels for TPUs; each computes what a plain path of `model/` computes."""
