"""The example notebook in a real kernel: no error, nothing printed twice, tables, figures and progress."""

import warnings
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient")
pytest.importorskip("ipykernel", reason="notebooks run in ipykernel")
pytest.importorskip("matplotlib", reason="the example has plots")

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def cells():
    """What the cells showed, by their last line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own
        nbformat = pytest.importorskip("nbformat")
        notebook = nbformat.read(EXAMPLE, as_version=4)
        nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return {
        cell["source"].splitlines()[-1]: cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"
    }


def test_every_cell_shows_its_last_line_once(cells):
    assert len(cells) == 14
    for line, outputs in cells.items():
        results = [output for output in outputs if output["output_type"] == "execute_result"]
        assert len(results) == 1, line
        (data,) = (output["data"] for output in results)
        kind = "image/png" if "plot" in line else "text/html"
        assert set(data) == {kind, "text/plain"}, line
        assert len(data[kind]) < (400_000 if "plot" in line else 20_000), line
        assert len(data["text/plain"]) < 700, line
        # Whatever else there is is the progress, and nothing that was printed.
        others = [output for output in outputs if output["output_type"] != "execute_result"]
        assert [output["output_type"] for output in others] in ([], ["display_data"]), line


def test_progress_is_one_line_in_the_end(cells):
    (progress,) = (output for output in cells["best"] if output["output_type"] == "display_data")
    shown = progress["data"]["text/html"]
    assert "Inverse" in shown
    assert "<progress" not in shown


def test_the_example_is_kept_without_its_outputs():
    assert EXAMPLE.stat().st_size < 20_000
    assert '"outputs": []' in EXAMPLE.read_text("utf-8")
    assert '"output_type"' not in EXAMPLE.read_text("utf-8")
