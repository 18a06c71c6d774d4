"""Models that are copied, pickled or saved in the middle of a capture carry nothing of it."""

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn
from truth import batch, each_method, seeded

from gradlab import capture_gradients


def small():
    return seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1)))


X = batch(5, 3)


def step(model, x=X):
    loss = model(x).square().sum()
    loss.backward()
    return loss.detach()


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # the copy has an idle hook, for which PyTorch warns
@each_method
def test_a_copied_model_carries_no_capture_and_trains_as_usual(method):
    model = small().eval()
    with capture_gradients(model, method) as capture:
        step(model)
        model.zero_grad()
        clone = copy.deepcopy(model)
        step(clone)
        assert len(capture.passes) == 1
        step(model)
        assert len(capture.passes) == 2
    for name, parameter in clone.named_parameters():
        assert torch.equal(parameter.grad, model.get_parameter(name).grad)
    again = copy.deepcopy(clone)
    step(again)
    assert len(capture.passes) == 2


LOADS_WITHOUT_GRADLAB = """
import sys
sys.modules["gradlab"] = None
import pickle, torch
for model in (pickle.load(open("pickle", "rb")), torch.load("torch", weights_only=False)):
    model(torch.ones(2, 3, dtype=torch.float64)).sum().backward()
    print(sum(p.grad is not None for p in model.parameters()))
"""


@each_method
def test_a_model_written_while_it_is_watched_loads_where_gradlab_is_not(method, tmp_path):
    model = small()
    with capture_gradients(model, method) as capture:
        step(model)
        model.zero_grad()
        (tmp_path / "pickle").write_bytes(pickle.dumps(model))
        torch.save(model, tmp_path / "torch")
        step(model)
    assert len(capture.passes) == 2
    done = subprocess.run(
        [sys.executable, "-c", LOADS_WITHOUT_GRADLAB], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["4", "4"]), done.stderr
    assert b"gradlab" not in (tmp_path / "pickle").read_bytes() + (tmp_path / "torch").read_bytes()


@each_method
def test_a_state_dict_written_while_watched_is_a_plain_one(method):
    model = small()
    with capture_gradients(model, method):
        step(model)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
    file.seek(0)
    assert list(torch.load(file, weights_only=True)) == list(small().state_dict())


@each_method
def test_an_input_that_is_watched_as_an_output_can_be_saved_without_a_word(method):
    model, x = seeded(lambda: nn.Sequential(nn.Identity(), nn.Linear(3, 1))), batch(2, 3).requires_grad_()
    with capture_gradients(model, method):
        step(model, x)
        saved = pickle.loads(pickle.dumps(x))
        clone = copy.deepcopy(x)
    assert torch.equal(saved, x)
    assert torch.equal(clone, x)
    assert not x._backward_hooks
