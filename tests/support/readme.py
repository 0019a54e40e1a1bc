"""The README, its snippets of Python and its calls of curl."""

from __future__ import annotations

import re

from tests.support.processes import ROOT

README = (ROOT / "README.md").read_text()
CURLS = re.findall(r"curl http://127.0.0.1:8000(/\S+) -d '(.*?)'", README, re.DOTALL)
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
