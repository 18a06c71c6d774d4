"""Who may import whom, and what `import gradlab` brings along."""

import ast
import inspect
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import gradlab

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gradlab"

# A module may import what stands above it or beside it, never what stands below.
LAYERS = (
    {"errors", "registry", "text"},
    {"sizes"},
    {"spec", "statistics"},
    {"networks"},
    {"batches"},
    {"capture"},
    {"tables", "activity"},
    {"experiment"},
    {"history", "presets", "export", "script", "fingerprint", "trail"},
    {"cut_offs", "flags", "diagnosis", "published_rules", "parting", "comparison", "ensemble", "theory"},
    {"lessons"},
    {"charts"},
    {"ui"},
)
# Imported when they are called: a backward pass makes its own table, and tables are made of its records.
LAZY = {("capture", "tables")}


def sources(*folders):
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(path, *, lazy=True, typing=True):
    """The dotted names a file imports; without those inside functions, or under TYPE_CHECKING, if so asked."""
    found, waiting = set(), [tree(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not lazy:
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not typing:
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute here"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        waiting += ast.iter_child_nodes(node)
    return found


def noun(path):
    """The part of the package a file belongs to: `capture` for gradlab/capture/engine.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def dependencies(path, **options):
    names = {name.split(".")[1] for name in imported(path, **options) if name.startswith("gradlab.")}
    return {name for name in names if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()}


@pytest.mark.parametrize("library", ["streamlit", "starlette", "altair"])
def test_the_apps_libraries_stay_where_they_belong(library):
    users = {path for path in sources("gradlab", "pages") if any(n.split(".")[0] == library for n in imported(path))}
    if library == "altair":
        allowed = set(sources("gradlab/charts"))
    else:
        allowed = {path for path in sources("gradlab/ui", "pages") if library == "streamlit" or "ui" in path.parts}
    assert users <= allowed


def test_nothing_imports_a_page():
    for path in sources("gradlab", "pages", "tests"):
        assert not {name for name in imported(path) if name.split(".")[0] == "pages"}, path


def test_every_module_of_the_package_has_its_place_in_the_order():
    nouns = {noun(path) for path in sources("gradlab")} - {"__init__"}
    assert nouns <= set().union(*LAYERS)


def test_imports_run_down_the_list_never_up():
    rank = {name: place for place, names in enumerate(LAYERS) for name in names}
    for path in sources("gradlab"):
        if path != PACKAGE / "__init__.py":
            here = noun(path)
            upward = {name for name in dependencies(path, typing=False) if rank[name] > rank[here]}
            at_once = dependencies(path, lazy=False, typing=False)
            assert {(here, name) for name in upward} <= LAZY, path
            assert not upward & at_once, path


def test_no_two_modules_need_each_other():
    graph = {}
    for path in sources("gradlab"):
        if path != PACKAGE / "__init__.py":
            graph.setdefault(noun(path), set()).update(dependencies(path, lazy=False, typing=False) - {noun(path)})
    TopologicalSorter(graph).prepare()


def in_a_fresh_interpreter(code):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def test_importing_gradlab_loads_neither_streamlit_nor_altair():
    done = in_a_fresh_interpreter(
        "import gradlab, sys; print(sorted({'streamlit', 'altair'} & {name.split('.')[0] for name in sys.modules}))"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_gradlab_measures_where_streamlit_and_altair_are_not_installed():
    core = sorted({noun(path) for path in sources("gradlab")} - {"__init__", "charts", "ui"})
    done = in_a_fresh_interpreter(
        "import sys, importlib; sys.modules['streamlit'] = sys.modules['altair'] = None; import gradlab\n"
        f"for name in {core!r}: importlib.import_module('gradlab.' + name)\n"
        "result = gradlab.run_experiment(gradlab.ExperimentSpec())\n"
        "print(len(result.weight_table()), len(gradlab.to_csv(result).splitlines()))"
    )
    assert done.returncode == 0, done.stderr
    weights, lines = map(int, done.stdout.split())
    assert weights == 5  # five layers: a weight and a bias each, and the outputs of Linear and GELU
    assert lines == 1 + 5 * 4


def test_a_page_is_short_and_defines_no_class():
    for path in sources("pages"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 110, path
        assert not [node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)], path


def test_every_name_that_is_offered_exists_and_once():
    assert sorted(set(gradlab.__all__)) == sorted(gradlab.__all__)
    assert all(hasattr(gradlab, name) for name in gradlab.__all__)


def test_every_name_that_is_offered_says_what_it_is():
    for name in gradlab.__all__:
        thing = getattr(gradlab, name)
        text = inspect.getdoc(thing) or ""
        assert len(text) > 10, name
        assert not text.startswith(f"{name}("), f"{name} has only the signature a dataclass makes up"


def test_every_public_function_of_the_core_says_what_it_does():
    missing = [
        f"{noun(path)}.{node.name}"
        for path in sources("gradlab")
        if noun(path) != "ui"
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert missing == []


def test_every_module_says_what_it_is_for():
    missing = [str(path.relative_to(ROOT)) for path in sources("gradlab", "pages") if not ast.get_docstring(tree(path))]
    assert missing == []
