"""The READMEs and the pages of the guide, their snippets of Python and their calls of curl."""

from __future__ import annotations

import re

from tests.support.processes import ROOT

READMES = [ROOT / "README.md", *(path for folder in (".github", "examples", "tests") for path in sorted((ROOT / folder).rglob("*.md")))]
README = READMES[0].read_text()
TEXT = "".join(path.read_text() for path in READMES)
CURLS = re.findall(r"curl http://127.0.0.1:8000(/\S+)(?: -H '[^']*')? -d '(.*?)'", TEXT, re.DOTALL)
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
