"""What was measured is remembered, across processes too; what shares an inverse is fitted once."""

import json

import pytest

import deql
from deql.errors import JournalError
from deql.io.journal import Journal
from deql.models.base import Recommender
from deql.paper.hyperparameters import Choice
from deql.paper.measurement_log import MeasurementLog, hyper_parameters, this_machine
from deql.paper.paper_datasets import PaperDataset
from deql.priors import LowPass
from tests.paper.common import found


@pytest.fixture
def dataset(small):
    return PaperDataset("debian", "weak", None)


@pytest.fixture
def fits(monkeypatch):
    """Counts fits."""
    done = []
    fit = Recommender.fit

    def counted(model, *arguments):
        done.append(hyper_parameters(model))
        return fit(model, *arguments)

    monkeypatch.setattr(Recommender, "fit", counted)
    return done


def journal(path):
    return Journal(path, {}, "reproduction")


class TestRemember:
    def test_across_processes(self, tmp_path):
        path, asked = tmp_path / "measured.jsonl", []
        for _ in range(2):
            with journal(path) as opened:
                log = MeasurementLog(opened)
                for seed in (1, 2, 1):
                    record = log.get_or_measure(
                        "sum", {"seed": seed, "of": (1, float("inf"))}, lambda: asked.append(1) or {"x": 0.1}
                    )
                    assert record["found"] == {"x": 0.1}
                assert [one["key"]["seed"] for one in log.used] == [1, 2]
        assert len(asked) == 2
        head, first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        assert head == {"deql": "reproduction", "version": 1, "search": {}}
        assert first["key"] == {"seed": 1, "of": [1, "inf"]}
        assert (first["machine"], first["step"], second["step"]) == (this_machine(), "sum", "sum")
        assert first["seconds"] >= 0
        assert first["when"].endswith("+00:00")

    def test_step_and_key_must_be_the_same(self):
        log = MeasurementLog(journal(None))
        log.get_or_measure("sum", {"of": 2}, lambda: {"value": 3})
        for step, key in (("mean", {"of": 2}), ("sum", {"of": 3}), ("sum", {"of": 2, "by": 1}), ("sum", {})):
            assert log.find(step, key) is None
            assert log.get_or_measure(step, key, lambda: {"value": 4})["found"] == {"value": 4}
        assert len(log.used) == 5

    def test_work_that_fails_leaves_nothing(self, tmp_path):
        with journal(tmp_path / "measured.jsonl") as opened:
            log = MeasurementLog(opened)
            with pytest.raises(ZeroDivisionError):
                log.get_or_measure("sum", {}, lambda: {"x": 1 / 0})
            assert (log.used, opened.records) == ([], [])
        assert len((tmp_path / "measured.jsonl").read_text().splitlines()) == 1

    def test_a_journal_of_a_search_is_refused(self, tmp_path):
        Journal(tmp_path / "measured.jsonl", {"metric": "ndcg@20"}).close()
        with pytest.raises(
            JournalError, match=r"measured\.jsonl is not a journal of a reproduction: name another file"
        ):
            journal(tmp_path / "measured.jsonl")


class TestJudge:
    def test_as_by_hand(self, dataset):
        log = MeasurementLog(journal(None))
        records = log.evaluate(dataset, found())
        for choice, record in zip(found(), records, strict=True):
            result = deql.evaluate(choice.model().fit(dataset.first.train), dataset.first.test)
            assert record["found"]["users"] == len(result.users)
            assert {metric: record["found"][metric] for metric in result.means} == pytest.approx(result.means, abs=1e-9)
            assert record["found"]["errors"] == pytest.approx(result.standard_errors, abs=1e-9)
            assert record["key"]["data"] == "debian-weak"
            assert record["key"]["split"] == dataset.fingerprint
        assert len({json.dumps(record["key"]) for record in records}) == len(records)

    def test_models_that_share_an_inverse_are_fitted_once(self, dataset, fits):
        told = []
        log = MeasurementLog(journal(None), tell=told.append)
        pair = [Choice("EASE", {"l2": 90.0}, "found"), Choice("RLAE", {"l2": 90.0, "xi": 0.7}, "published")]
        first, second = log.evaluate(dataset, pair)
        assert len(fits) == 1
        assert told == ["Debian (bundled): fitting EASE l2=90, RLAE l2=90 xi=0.7"]
        assert first["found"]["ndcg@20"] != second["found"]["ndcg@20"]
        log.evaluate(
            dataset, [*pair, Choice("EASE", {"l2": 6.0}, "found"), Choice("RLAE", {"l2": 6.0, "xi": 0.2}, "found")]
        )
        assert len(fits) == 2

    def test_the_same_model_twice_is_one_record(self, dataset, fits):
        log = MeasurementLog(journal(None))
        twice = [Choice("EASE", {"l2": 5.0}, origin) for origin in ("published", "test")]
        first, second = log.evaluate(dataset, twice)
        assert first is second
        assert (len(fits), len(log.used), len(log.journal.records)) == (1, 1, 1)

    def test_again_from_the_journal_however_it_is_computed(self, dataset, fits, tmp_path):
        path = tmp_path / "measured.jsonl"
        with journal(path) as opened:
            before = MeasurementLog(opened).evaluate(dataset, found())
        done = len(fits)
        with journal(path) as opened:
            log = MeasurementLog(opened, {"engine": "memory", "progress": False})
            assert log.evaluate(dataset, list(reversed(found()))) == list(reversed(before))
            assert len(log.used) == len(before)
        assert len(fits) == done

    def test_a_kill_loses_one_fit(self, dataset, fits, tmp_path):
        def stop(text):
            if "RLAE" in text:
                raise KeyboardInterrupt

        rows = [Choice("EASE", {"l2": 5.0}, "found"), Choice("RLAE", {"l2": 6.0, "xi": 0.2}, "found")]
        with journal(tmp_path / "measured.jsonl") as opened, pytest.raises(KeyboardInterrupt):
            MeasurementLog(opened, tell=stop).evaluate(dataset, rows)
        with journal(tmp_path / "measured.jsonl") as opened:
            MeasurementLog(opened).evaluate(dataset, rows)
        assert [(one["model"], one["l2"]) for one in fits] == [("EASE", 5.0), ("RLAE", 6.0)]

    def test_another_split_is_judged_anew(self, small, dataset, fits):
        log, ease = MeasurementLog(journal(None)), [Choice("EASE", {"l2": 5.0}, "found")]
        (weak,) = log.evaluate(dataset, ease)
        (strong,) = log.evaluate(PaperDataset("debian", "strong", None), ease)
        assert len(fits) == 2
        assert weak["key"]["split"] != strong["key"]["split"]


@pytest.mark.parametrize("left_out", ["found", "when", "machine", "seconds", "key"])
def test_a_damaged_record_is_named(tmp_path, left_out):
    path = tmp_path / "measured.jsonl"
    with Journal(path, {}, "reproduction") as journal:
        MeasurementLog(journal).get_or_measure("sum", {"of": 2}, lambda: {"value": 3})
    head, line = path.read_text(encoding="utf-8").splitlines()
    record = {name: value for name, value in json.loads(line).items() if name != left_out}
    path.write_text(f"{head}\n{json.dumps(record)}\n", encoding="utf-8")
    with Journal(path, {}, "reproduction") as journal, pytest.raises(JournalError, match=r"^line 2 of .* is damaged"):
        MeasurementLog(journal)


def test_a_journal_of_other_work_is_not_erased(tmp_path):
    path = tmp_path / "measured.jsonl"
    with Journal(path, {}, "reproduction") as journal:
        MeasurementLog(journal).get_or_measure("sum", {"of": 2}, lambda: {"value": 3})
    before = path.read_bytes()
    with pytest.raises(JournalError, match="with other x"):
        Journal(path, {"x": 1}, "reproduction")
    assert path.read_bytes() == before


def test_a_model_without_a_solution_does_not_end_the_others(small):
    from dataclasses import replace

    dataset = PaperDataset("debian", "weak", None)
    split = dataset.first
    empty = split.train.keep(split.train.matrix.indices > 0)  # nobody has the first item
    dataset.__dict__["first"] = replace(split, train=empty)
    plain, ease = Choice("DEQL(plain)", {"dropout": 0.5, "b": 1.0}, "found"), Choice("EASE", {"l2": 5.0}, "found")
    first, second = MeasurementLog(Journal(None, {}, "reproduction")).evaluate(dataset, [plain, ease])
    assert "no interactions" in first["found"]["failure"]
    assert 0 < second["found"]["recall@20"] <= 1


class TestPriors:
    def test_journals_from_before_priors_are_found(self):
        model = deql.DEQL(5.0, 0.3)
        assert not {"prior", "prior_weight"} & hyper_parameters(model).keys()
        assert hyper_parameters(deql.DEQL(5.0, 0.3, prior_weight=0.7)) == hyper_parameters(model)

    def test_models_differ_by_their_prior_and_its_weight(self):
        models = [deql.DEQL(5.0, 0.3, prior=LowPass(rank), prior_weight=weight) for rank in (4, 8) for weight in (1, 2)]
        keys = [json.dumps(hyper_parameters(model), sort_keys=True) for model in (deql.DEQL(5.0, 0.3), *models)]
        assert len(set(keys)) == len(keys)
        assert hyper_parameters(models[0])["prior"] == "lowpass:rank=4,power_in=0,power_out=0.6"


def test_a_record_tells_of_the_device_of_another_process(tmp_path):
    log = MeasurementLog(Journal(None, {}, "reproduction"))
    told = log.append("trained", {"of": 1}, {"facts": {"device": "Some GPU"}}, 1.0)["machine"]
    assert told == this_machine("Some GPU") != this_machine()
