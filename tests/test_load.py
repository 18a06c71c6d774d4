"""The load benchmark runs against a real server, and finds what it is there to find."""

import os
import re
import subprocess
import sys
from pathlib import Path

LOAD = Path(__file__).parent / "benchmarks" / "load.py"
QUICKLY = ("--group", "3", "--pause", "0", "0.1", "--ramp", "0")
FAULTY = """
import os
import streamlit as st

def fine():
    st.title("The same for everybody")
    st.slider("How many", 1, 5)

def faulty():
    st.title(os.urandom(8).hex())
    with st.form("answer"):
        st.text_input("Why")
        st.form_submit_button("Send")
    if st.toggle("Divide"):
        st.write(1 / 0)

st.navigation([st.Page(fine), st.Page(faulty)]).run()
"""


def load(*arguments, **environment):
    """The exit status of the benchmark and what it prints."""
    command = [sys.executable, str(LOAD), *arguments]
    environment = os.environ | environment
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=LOAD.parents[2], env=environment
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def count(pattern, text):
    return int(re.search(pattern, text).group(1))


def test_three_learners_on_a_real_server_see_the_same():
    status, told = load("--learners", "3", "--actions", "4", *QUICKLY)
    assert count(r"different: (\d+)", told) == 0, told
    assert status == 0, told
    assert count(r"compared within groups: (\d+)", told) == 2 * (1 + 4)  # two of the three, at opening and after each action
    assert count(r"^(\d+) runs", told.partition("each\n")[2]) == 3 * (1 + 4)
    assert "memory of the server: " in told


def test_numbers_that_differ_and_exceptions_on_a_page_are_found(tmp_path):
    script = tmp_path / "faulty.py"
    script.write_text(FAULTY)
    status, told = load("--learners", "6", "--actions", "16", *QUICKLY, "--app", str(script))
    assert status == 1
    assert re.search(r"DIFFERENT \d+ times: faulty after ", told)
    assert "DIFFERENT" not in re.sub(r"DIFFERENT \d+ times: faulty", "", told)
    assert re.search(r"EXCEPTION \d+ times: faulty: .*[Ee]rror", told)


def test_first_visits_fetch_the_page_and_its_files(tmp_path):
    script = tmp_path / "fine.py"
    script.write_text("import streamlit as st; st.title('Here')")
    status, told = load("--first-visit", "2", "--app", str(script), PATH="")  # without Chromium: by what the HTML names
    assert status == 0, told
    assert count(r"2 first visits of (\d+) files", told) > 20
    assert all(float(size) > 0.5 for size in re.findall(r"([\d.]+) MB each", told))
