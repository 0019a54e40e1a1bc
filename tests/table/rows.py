"""The table of requests: each goes through every way in and must be answered alike, byte for byte.

A good row holds the exact body of its answer; a bad one its status and what the text must name.
"""

from __future__ import annotations

from tests.table.body_rows import binary_rows, compressed_rows, limit_rows, raw_request_rows, vector_rows
from tests.table.class_rows import class_rows
from tests.table.extension_rows import classification_rows, reserved_rows, shared_memory_rows
from tests.table.header_rows import header_rows
from tests.table.json_rows import declared_rows, document_rows, element_rows, good_rows, output_rows, scalar_rows, tensor_rows
from tests.table.known_rows import known_rows
from tests.table.page_rows import page_rows
from tests.table.route_rows import metadata_rows, model_rows, path_rows, repository_rows, timeout_rows, version_rows
from tests.table.row import Row


def rows() -> list[Row]:
    """All rows."""
    made = [
        *metadata_rows(),
        *path_rows(),
        *repository_rows(),
        *version_rows(),
        *vector_rows(),
        *good_rows(),
        *output_rows(),
        *raw_request_rows(),
        *document_rows(),
        *tensor_rows(),
        *element_rows(),
        *binary_rows(),
        *declared_rows(),
        *scalar_rows(),
        *limit_rows(),
        *compressed_rows(),
        *timeout_rows(),
        *model_rows(),
        *header_rows(),
        *page_rows(),
        *classification_rows(),
        *reserved_rows(),
        *shared_memory_rows(),
        *class_rows(),
        *known_rows(),
    ]
    assert len({row.name for row in made}) == len(made), "two rows have the same name"
    return made
