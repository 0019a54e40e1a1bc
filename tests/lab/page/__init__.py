"""The page at /v2/docs, and pages of other sites, in Chromium: `tox -e page`. `python -m tests.lab.page.page_picture` takes its picture."""
