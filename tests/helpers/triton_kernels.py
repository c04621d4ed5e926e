"""Where the kernels for GPUs can be tried."""

from __future__ import annotations

import os

import pytest
import torch

from hushgraph.models import row_sums_gpu as rowsums_gpu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NEEDS_TRITON = pytest.mark.skipif(
    not rowsums_gpu.AVAILABLE or not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET")),
    reason="needs Triton and a GPU, or TRITON_INTERPRET=1",
)
