"""One thread for every test: on small inputs the thread pools of torch and numba only wait for each other."""

from __future__ import annotations

import numba
import torch

torch.set_num_threads(1)
numba.set_num_threads(1)
