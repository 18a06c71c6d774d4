"""The Streamlit side of the lab: everything here may import streamlit, nothing else in the package does."""
