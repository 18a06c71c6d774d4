"""Trail: the backward order, arrival by arrival."""

import streamlit as st

from gradlab.ui import cache, controls, panels, stepper

st.title("In which order does the gradient visit the layers?")
picture, steps = st.container(), st.container()

quantity = panels.quantity_switch("gradient")
spec = controls.experiment()
trail = cache.trail(spec, quantity)

with steps:
    arrived = stepper.arrival(trail)
networks = {"This network": spec}
with picture:
    panels.show(cache.river(networks, quantity, arrived, panels.dark()), "trail_river", ("", cache.diagnosed(spec)))

printed = st.toggle("Printed order (input end first)", key="printed_order", bind="query-params")
panels.trail_table(trail, printed)
panels.download(cache.measured(spec), key="trail_csv")
