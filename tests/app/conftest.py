"""Pages as a visitor meets them, in process and without a browser: Streamlit's AppTest with names for what is on a page."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow
import pytest
from streamlit.components.v2.component_manager import BidiComponentManager
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.testing.v1 import AppTest

import gradlab
from gradlab.spec import FIELDS

ROOT = Path(__file__).resolve().parents[2]
WIDGETS = (
    *("selectbox", "radio", "segmented_control", "multiselect", "toggle", "number_input", "slider", "select_slider"),
    *("text_input", "text_area", "button"),
)
DRAWERS = ("settings_drawer", "cut_offs_drawer")


class Visit:
    """One visitor's session, on one page at a time."""

    def __init__(self, script, url, parameters):
        self.begin(script, url, parameters)

    def begin(self, script, url, parameters=()):
        """A session of its own, as a reload begins one."""
        self.at = AppTest.from_file(ROOT / script, default_timeout=60)
        self.at.query_params = dict(parameters)
        self.at.context["url"] = url
        return self.drawers(are_open=True)

    def run(self):
        """Run the page; it may say what it likes, but not raise."""
        self.at.run()
        assert [error.value for error in self.at.exception] == []
        return self

    def go(self, page, *, drawers_open=True, **parameters):
        """Change the page through the menu, or follow a link to it, as a browser does it."""
        self.at.switch_page(f"../../pages/{page}.py")
        self.at.query_params = dict(parameters)
        self.at.context["url"] = f"http://localhost/{page}"
        # A browser sends no widget's value along with a page change; AppTest's own run() would send those of the old page,
        # and the new page's widgets of the same keys would then be taken for drawn already.
        return self.drawers(are_open=drawers_open).send(WidgetStates())

    def states_with(self, states):
        """What the page's widgets say, but for these."""
        changed = {state.id for state in states}
        others = [state for state in self.at._tree.get_widget_states().widgets if state.id not in changed]
        return WidgetStates(widgets=[*others, *states])

    def send(self, states):
        """Run the page with these widget states, whatever its widgets would send of themselves."""
        self.at._run(states)
        assert [error.value for error in self.at.exception] == []
        return self

    @property
    def widgets(self):
        return [widget for kind in WIDGETS for widget in getattr(self.at, kind)]

    def widget(self, name):
        """The widget of a setting (`activation`) or of any other key (`arrivals`)."""
        (widget,) = [widget for widget in self.widgets if widget.key in (f"setting_{name}", name)]
        return widget

    def drawers(self, *, are_open):
        """Open or close the parts of the page that are drawn only when they are open, from the next run on."""
        for name in DRAWERS:
            self.at.session_state[name] = are_open
        return self

    def set(self, **values):
        """Give widgets these values, all in one run."""
        for name, value in values.items():
            self.widget(name).set_value(value)
        return self.run()

    def click(self, name):
        self.widget(name).click()
        return self.run()

    @property
    def said(self):
        """All texts on the page, also those that stand for charts."""
        texts = [
            str(element.value)
            for kind in ("title", "header", "markdown", "text", "code", "error", "warning")
            for element in getattr(self.at, kind)
        ]
        return "\n".join([*texts, *(chart.alt for chart in self.charts)])

    @property
    def elements(self):
        """What is on the page from top to bottom, without the boxes around it."""
        return [element for element in self.at.main if not hasattr(element, "children")]

    @property
    def name(self):
        """The page's place in the address."""
        return urlsplit(self.at.context["url"]).path.strip("/")

    @property
    def title(self):
        (title,) = self.at.title
        return title.value

    @property
    def settings(self):
        """What the controls show, by the names of the specification's fields."""
        return {name: self.widget(name).value for name in FIELDS}

    @property
    def link(self):
        return dict(self.at.query_params)

    @property
    def markdown(self):
        return "\n".join(element.value for element in self.at.markdown)

    @property
    def why(self):
        """The reason why the experiment cannot be run, "" if it can."""
        assert len(self.at.error) <= 1
        return self.at.text[-1].value if self.at.error else ""

    @property
    def left_out(self):
        """The lines of the notice that part of a link could not be used."""
        assert len(self.at.warning) <= 1
        return self.at.text[0].value.splitlines() if self.at.warning else []

    def answer(self, option, sure="certain"):
        """Answer the first question that is open on the page, say how sure, and commit."""
        question = self.at.radio[0]
        name = question.key.removeprefix("option_")
        question.set_value(option)
        self.widget(f"sure_{name}").set_value(sure)
        self.widget(f"FormSubmitter:form_{name}-Commit").click()
        return self.run()

    @property
    def charts(self):
        return [chart.proto for chart in self.at.get("vega_lite_chart")]

    @property
    def chart(self):
        """The page's picture: its first chart."""
        return self.charts[0]

    def layers(self, chart=None):
        """The chart's layers, each as its specification and its data."""
        chart = chart or self.chart
        specification = json.loads(chart.spec)
        frames = {dataset.name: dataset.data.data for dataset in chart.datasets}
        frames = {name: pyarrow.ipc.open_stream(data).read_pandas() for name, data in frames.items()}
        return [(layer, frames[(layer.get("data") or specification["data"])["name"]]) for layer in specification["layer"]]

    @property
    def drawn(self):
        """Layer -> reading for all readings that are drawn on the chart's scale."""
        return {row.layer: row.reading for row in self._readings() if not row.mark}

    @property
    def marks(self):
        """Layer -> mark for all readings that the scale has no place for."""
        return {row.layer: row.mark for row in self._readings() if row.mark}

    @property
    def trails(self):
        """Name of the network -> layer -> reading, for all bands of a river."""
        rows = [row for _, data in self.layers() if {"trail", "layer"} <= {*data} for row in data.itertuples()]
        return {name: {row.layer: row.reading for row in rows if row.trail == name} for name in {row.trail for row in rows}}

    def _readings(self):
        """All rows behind the chart that are readings; what was predicted is none."""
        return [row for _, data in self.layers() if "mark" in data for row in data.itertuples()]


def measured(spec, gradient="weights"):
    """Layer -> mean absolute gradient of the experiment as the package itself runs it, without the app."""
    result = gradlab.run_experiment(spec)
    if gradient == "weights":
        rows = [(row.parameter, row) for row in result.weight_table().itertuples() if len(row.shape) == 2]
    else:
        rows = [(row.layer, row) for row in result.output_table().itertuples() if row.module_type == "Linear"]
    return {".".join(name.split(".")[:2]): row.mean_abs for name, row in rows}


@pytest.fixture(autouse=True)
def no_search_for_components(monkeypatch):
    """AppTest looks through all installed packages for components: most of a short test's time, and the lab has none."""
    monkeypatch.setattr(BidiComponentManager, "discover_and_register_components", lambda manager, **options: None)


@pytest.fixture
def visit():
    """Opens a page by its link: `visit("measure", seed="7")`."""

    def open_page(page="start", **parameters):
        start = Visit("gradlab/ui/entry.py", "http://localhost/", {}).run()
        return start.go(page, **parameters)

    return open_page


@pytest.fixture
def visit_alone():
    """Opens a page's file by itself, without the entry script."""
    return lambda page, **parameters: Visit(f"pages/{page}.py", "http://localhost/", parameters).run()


@pytest.fixture(name="measured")
def measured_fixture():
    return measured
