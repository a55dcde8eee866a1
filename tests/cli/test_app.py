"""The program around its commands: what starts it, what it lists, and what it imports for that."""

import errno
import inspect
import io
import signal
import subprocess
import sys
from importlib import import_module

import pytest

import deql
from deql.cli import run
from deql.cli.app import COMMANDS, DATA_COMMANDS
from tests.cli.test_cli import refusal


@pytest.mark.parametrize(
    ("package", "name", "listed"),
    [("deql.cli", *one) for one in COMMANDS.items()] + [("deql.cli.data", *one) for one in DATA_COMMANDS.items()],
)
def test_the_list_says_what_the_command_says_of_itself(package, name, listed):
    function = name.replace("-", "_")
    command = getattr(import_module(f"{package}.{function}"), function)
    first = inspect.cleandoc(command.__doc__).partition("\n\n")[0]
    assert " ".join(first.split()) == listed


def test_python_m_deql_is_the_command():
    done = subprocess.run([sys.executable, "-m", "deql", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, f"deql {deql.__version__}")
    done = subprocess.run([sys.executable, "-m", "deql", "frobnicate"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("deql: error: No such command 'frobnicate'")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit"], "Missing argument 'DATA'. (deql fit --help shows how)"),
        (["data", "info"], "Missing argument 'DATA'. (deql data info --help shows how)"),
        (["data", "inof"], "Did you mean 'info'? (deql data --help shows how)"),
        (["fit", "a.csv", "--pop-power", "1"], "--user-power) (deql fit --help shows how)"),
        (["data", "split", "a.csv", "--protocol", "zeit"], "Invalid value for '--protocol': 'zeit' is not one of"),
        (["nothing"], "No such command 'nothing'. (deql --help shows how)"),
    ],
)
def test_a_slip_names_the_help_that_shows_how(capsys, arguments, said):
    assert said in refusal(capsys, *arguments)


@pytest.mark.parametrize("arguments", [["--version"], ["data", "info", "events.csv", "--json"]])
def test_a_reader_that_has_seen_enough_is_no_failure(monkeypatch, tmp_path, arguments):
    (tmp_path / "events.csv").write_text("user,item\nann,tea\nann,jam\nbob,tea\n")
    monkeypatch.chdir(tmp_path)

    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", Closed())
    assert run(arguments) == 0
    sys.stdout.close()


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_a_group_without_a_command_shows_its_commands(capsys, arguments):
    assert run(arguments) == 0
    alone = capsys.readouterr().out
    assert run([*arguments, "--help"]) == 0
    assert alone == capsys.readouterr().out
    assert "\nCommands\n" in alone


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["data", "--help"], ["frobnicate"]])
def test_the_list_of_commands_imports_none_of_them(arguments):
    code = f"import sys; from deql.cli import run; run({arguments!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "polars", "numba", "torch"} & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["data", "split", "FILE", "-o", "OUT", "--held-out", "1.5"], "--held-out must be a share between 0 and 1"),
        (["data", "split", "FILE", "-o", "OUT", "--test-users=2"], "--test-users must be a share between 0 and 1"),
        (["data", "split", "FILE", "-o", "OUT", "--k-core", "0"], "--k-core must be a whole number from 1 up"),
        (["data", "split", "FILE", "-o", "OUT", "--protocol", "leave-last"], "say --time with one of"),
        (["data", "info", "FILE", "--min-weight", "nan"], "--min-weight must be a number, got nan"),
        (["data", "info", "FILE", "--ids", "words"], "--ids must be 'auto' or 'text', got 'words'"),
        (["data", "info", "FILE", "--format", "word"], "--format: unknown format 'word': say one of"),
        (["data", "info", "FILE", "--user", "who"], "has no column 'who': say --user with one of 'user'"),
        (["data", "info", "FILE", "--user", "9"], "has 3 columns, so --user 9 is none of them"),
        (["data", "info", "FILE", "--user", "1", "--item", "1"], "say --user and --item with two of 'user'"),
        (["data", "info", "FILE", "--weight", "note"], "is not a number: correct it, or name another --weight"),
        (["data", "info", "MATRIX", "--user", "1", "--time", "2"], "no columns to name: leave out --user, --time"),
        (["data", "info", "NEGATIVE", "--weight", "stars"], "leave such rows out with --min-weight, or build"),
        (["data", "info", "WORD"], "correct or remove the row, or say --ids text if it is right"),
        (["tune", "FILE", "-o", "OUT", "--metric", "ndgc@20"], "error: --metric: unknown metric 'ndgc@20': say"),
        (["tune", "FILE", "-o", "OUT", "--budget", "soon"], "error: --budget: a budget is a number of inverses"),
        (["tune", "FILE", "-o", "OUT", "--dtype", "half"], "--dtype must be 'float32' or 'float64', got 'half'"),
        (["fit", "FILE", "-o", "OUT", "--threads", "0"], "error: --threads: the number of threads must be"),
        (["evaluate", "FILE", "ease:l2=-1"], "error: ease:l2=-1: l2 must be a number from 0 up"),
        (["evaluate", "FILE", "ease", "--metrics", "ndgc@20"], "error: --metrics: unknown metric 'ndgc@20'"),
        (["evaluate", "FILE", "ease", "--metric", "ndgc@20"], "error: --metric: unknown metric 'ndgc@20'"),
        (["compare", "FILE", "ease", "--metric", " , "], "error: --metric: name at least one metric, such as ndcg@20"),
        (["tune", "FILE", "-o", "OUT", "--metrics", "ndcg@20,x"], "error: --metrics: unknown metric 'x': say"),
        (["tune", "FILE", "-o", "OUT", "--metrics=gini@20"], "error: --metrics: gini@20 does not say how good"),
    ],
)
def test_errors_name_the_options_that_were_typed(capsys, tmp_path, arguments, said):
    files = {name: tmp_path / f"{name}.csv" for name in ("FILE", "NEGATIVE", "WORD", "OUT")}
    files["MATRIX"] = tmp_path / "matrix.npz"
    files["FILE"].write_text("user,item,note\n1,2,much\n1,3,x\n2,3,y\n")
    files["NEGATIVE"].write_text("user,item,stars\n1,2,-1\n1,3,2\n2,3,4\n")
    files["WORD"].write_text("user,item\n1,2\n1,3\n2,3\nunknown,3\n")
    files["MATRIX"].write_bytes(b"")
    assert said in refusal(capsys, *(files.get(argument, argument) for argument in arguments))


@pytest.mark.parametrize(
    ("wait", "signals", "code"),
    [
        # While libraries are loaded, nothing is written: the system may end it.
        ("app.import_module = lambda name: wait()", 1, -signal.SIGTERM),
        # A thread that never ends is not waited for by who asks twice.
        ("app.app = lambda **_: (app._listen_for_the_end(), hang())", 2, 143),
    ],
)
def test_a_signal_to_end_is_heard(wait, signals, code):
    program = (
        "import sys, time; from deql.cli import app\n"
        "def wait(): print('here', flush=True); time.sleep(60)\n"
        "def hang():\n"
        "    try: wait()\n"
        "    finally: wait()\n"
        f"{wait}\n"
        "sys.argv[1:] = ['similar', 'a', 'b']; app.main()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        for _ in range(signals):
            assert process.stdout.readline() == "here\n"
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == code


FIT, TUNE = ["fit", "a.csv"], ["tune", "a.csv"]
NO_THREADS = RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("error", "arguments", "said", "unsaid"),
    [
        (MemoryError(), [*FIT, "--dtype", "float64"], "--dtype float32", "--threads"),
        (MemoryError(), [*FIT, "--engine", "disk"], "--min-users-per-item", "disk"),
        (MemoryError(), [*FIT, "--auto"], "--min-users-per-item", "disk"),
        (MemoryError(), [*FIT, "--min-users-per-item=3"], "--engine disk", "--min-users-per-item"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), FIT, "--engine disk", "float32"),
        (NO_THREADS, FIT, "say --threads 1", "memory"),
        (NO_THREADS, [*FIT, "--threads", "1"], "raise the limit", "--threads"),
        # What the command has no option for.
        (NO_THREADS, TUNE, "raise the limit", "--threads"),
        (MemoryError(), ["tune", "fit"], "--min-users-per-item", "--engine"),
        (MemoryError(), ["data", "info", "float64.csv"], "--min-users-per-item", "float32"),
        (MemoryError(), ["evaluate", "a.csv", "ease:dtype=float64"], "--min-users-per-item", "--dtype"),
        (MemoryError(), ["recommend", "shop.deql"], "free some", "--"),
        (MemoryError(), ["similar", "shop.deql", "fit"], "free some", "--"),
        (MemoryError(), ["serve", "shop.deql"], "free some", "--"),
    ],
)
def test_advice_is_left_to_try(capsys, monkeypatch, error, arguments, said, unsaid):
    def fail(**_):
        path = arguments[: 2 if arguments[0] == "data" else 1]
        import_module(".".join(["deql.cli", *path]))
        raise error

    monkeypatch.setattr("deql.cli.app.app", fail)
    monkeypatch.setattr("deql.cli.app.limits_set", list)
    told = refusal(capsys, *arguments)
    assert said in told
    assert unsaid not in told
