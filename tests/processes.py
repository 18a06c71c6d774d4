"""Two real processes that exchange over gloo, started in one place."""

import os
import sys

import torch
from torch import distributed, multiprocessing


def in_both_processes(folder, scenario):
    """Run ``scenario(rank)`` in two processes that meet in ``folder``; an exception in either is raised here."""
    multiprocessing.spawn(_process, args=(str(folder), scenario), nprocs=2)


def _process(rank, folder, scenario):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    scenario(rank)
    distributed.barrier()  # whoever left first would take the other's connection along
    sys.stdout.flush()
    sys.stderr.flush()
    # Gloo's own threads may outlive its groups (a device mesh makes several), and an interpreter that is shut down
    # under one of them aborts: about one run in thirty did. Nothing is left to do, so leave without a shutdown.
    os._exit(0)
