"""Settings for every test."""

import torch
from hypothesis import settings

# The same examples in every run; and no time limit for one, as a busy machine would fail it.
settings.register_profile("gradlab", deadline=None, derandomize=True)
settings.load_profile("gradlab")

# The tensors are small: threads would only wait for each other, on a busy machine for seconds.
torch.set_num_threads(1)
