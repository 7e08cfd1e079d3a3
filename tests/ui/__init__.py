"""A real Chromium against a real JupyterLab with real TensorFlow tasks; see README.md."""
