"""The encoder in NumPy float64, written from the papers' formulas and not from the modules: the truth of the tests.

One row at a time, loops over pairs of words, layers and parts, the tensors that the modules avoid. Parameters are the
model's own tree, as float64.
"""

from tests.oracle.basics import gelu, layer_norm, softmax
from tests.oracle.encoder import encode_row, mlm_logits
from tests.oracle.positions import t5_bucket

__all__ = ["encode_row", "gelu", "layer_norm", "mlm_logits", "softmax", "t5_bucket"]
