"""What training does: it minimises the loss, a seed repeats it, and a checkpoint resumes it, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql.errors import CheckpointError, DataError
from deql.io import container
from deql.split import HeldOut, split_strong, split_weak
from tests.models.neural.small import DATA, KINDS, Killed, facts_of, four_tastes, killing, small

torch = pytest.importorskip("torch")
from deql.models.neural import checkpoint as checkpoints  # noqa: E402
from deql.models.neural import trainer  # noqa: E402
from deql.models.neural.lightgcn_network import LightGCNNetwork  # noqa: E402
from deql.models.neural.network import Network  # noqa: E402
from deql.models.neural.steps import Steps  # noqa: E402
from tests.models.neural.dense import TASTES, graph_of, vectors  # noqa: E402

CONFIG = trainer.TrainingConfig(
    rank=3, epochs=4, last_epoch=4, batch_size=5, learning_rate=0.05, patience=None, validate_every=1, seed=0
)
EDGES = int(np.count_nonzero(TASTES))
SPLIT = split_weak(DATA, 0.2, 0.2, 1)
STRONG = split_strong(DATA, test_users=0.2, validation_users=0.2, held_out=0.3, seed=1)


class Pulled(Network):
    """Every vector is pulled towards its target, whatever the pairs; those are kept."""

    def __init__(self, target):
        super().__init__(graph_of(TASTES), 0)
        self.target, self.seen = target, []

    def loss(self, E, pairs):
        self.seen.append(pairs.tolist())
        return (E - self.target).square().sum() + 0.5


class Numbered(Network):
    """The loss of a pair is its place."""

    def loss(self, E, pairs):
        return pairs.float().mean() + 0 * E.square().sum()


class TestTraining:
    def test_finds_the_minimum(self):
        target = vectors(13).float()
        config = replace(CONFIG, epochs=300, last_epoch=300, learning_rate=0.1, batch_size=100)
        found = trainer.train(Pulled(target), config)
        np.testing.assert_allclose(found.right, target[7:], atol=1e-3)
        assert found.history[-1].loss == pytest.approx(0.5, abs=1e-3)
        assert found.epochs == len(found.history) == 300

    def test_takes_adam_s_steps(self):
        """The first is the learning rate's length, against the gradient's sign."""
        target = vectors(13).float()
        first = trainer.train(
            Pulled(target), replace(CONFIG, epochs=1, last_epoch=1, batch_size=100, learning_rate=1e-10)
        )
        after = trainer.train(Pulled(target), replace(CONFIG, epochs=1, last_epoch=1, batch_size=100))
        steps = after.right - first.right
        np.testing.assert_allclose(steps, 0.05 * np.sign(target[7:].numpy() - first.right), rtol=1e-4)

    @pytest.mark.parametrize("batch_size", [1, 5, EDGES, 1000])
    def test_sees_each_interaction_once_in_an_epoch_in_another_order(self, batch_size):
        network = Pulled(vectors(13).float())
        trainer.train(network, replace(CONFIG, batch_size=batch_size))
        sizes = {len(pairs) for pairs in network.seen}
        assert sizes <= {min(batch_size, EDGES), EDGES % batch_size}
        epochs = np.concatenate(network.seen).reshape(4, EDGES)
        np.testing.assert_array_equal(np.sort(epochs), np.tile(np.arange(EDGES), (4, 1)))
        assert len({tuple(order) for order in epochs.tolist()}) == 4

    @pytest.mark.parametrize("batch_size", [4, 5, 1000])
    def test_tells_the_mean_loss_of_pairs(self, batch_size):
        """Though the last batch is smaller."""
        found = trainer.train(Numbered(graph_of(TASTES), 0), replace(CONFIG, batch_size=batch_size))
        assert [epoch.loss for epoch in found.history] == pytest.approx([(EDGES - 1) / 2] * 4)
        assert all(epoch.ndcg is None and epoch.seconds > 0 for epoch in found.history)

    def test_tells_how_far_it_is_after_each_step(self):
        told = []
        trainer.train(Numbered(graph_of(TASTES), 0), CONFIG, report=lambda *progress: told.append(progress))
        count = -(-EDGES // 5)
        assert told == [(step, 4 * count) for step in range(1, 4 * count + 1)]

    def test_lowers_the_learning_rate_along_half_a_cosine(self, monkeypatch):
        rates, begin = [], Steps.begin_epoch
        monkeypatch.setattr(Steps, "begin_epoch", lambda self, rate: rates.append(rate) or begin(self, rate))
        trainer.train(Numbered(graph_of(TASTES), 0), replace(CONFIG, last_epoch=3))
        assert rates == pytest.approx([0.05, 0.05 * (1 + 0.5**0.5) / 2, 0.05 / 2])

    @pytest.mark.parametrize("kind", KINDS)
    def test_fits_little_data_to_the_last_interaction(self, kind):
        """Every user's own items come before all others."""
        data = four_tastes()
        model = small(kind, rank=16, epochs=100, batch_size=16, learning_rate=0.1, weight_decay=0.0).fit(data)
        lists = model.recommend(data, k=20, exclude_seen=False).ids.tolist()
        for user, items in zip(data.users.tolist(), lists, strict=True):
            own = data.history(user)
            assert set(items[: len(own)]) == set(own)
        losses = [epoch.loss for epoch in model.history_]
        assert losses[-1] < 0.7 * losses[0]

    def test_brings_bpr_next_to_nothing(self):
        model = small(rank=16, epochs=100, batch_size=16, learning_rate=0.1, weight_decay=0.0).fit(four_tastes())
        assert model.history_[-1].loss < 0.01 * np.log(2)

    def test_weight_decay_keeps_vectors_short(self):
        free, held = (small(weight_decay=decay, epochs=20).fit(DATA).right_ for decay in (0.0, 0.3))
        assert np.linalg.norm(held) < 0.5 * np.linalg.norm(free)


class TestSeeds:
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_same_gives_the_same_to_the_last_bit(self, kind, monkeypatch, tmp_path):
        monkeypatch.setattr(trainer, "perf_counter", lambda: 0.0)  # the file keeps seconds
        first, second, other = (small(kind, seed=seed).fit(DATA) for seed in (3, 3, 4))
        assert facts_of(first) == facts_of(second)
        assert np.abs(first.right_ - other.right_).max() > 0.01
        for model, name in ((first, "first"), (second, "second")):
            model.save(tmp_path / name)
        assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()

    def test_may_be_large(self):
        assert np.isfinite(small(seed=10**30, epochs=1).fit(DATA).right_).all()

    def test_leave_torch_s_own_alone(self):
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        small("SGL", epochs=1).fit(DATA)
        assert torch.equal(torch.rand(3), expected)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "training.checkpoint"


@pytest.fixture
def at_once(monkeypatch):
    """A checkpoint after every epoch."""
    monkeypatch.setattr(trainer, "_SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    monkeypatch.setattr(trainer, "_SHARE_OF_CHECKPOINTS", np.inf)


def kill(monkeypatch, model, step, data=DATA, **given):
    """Train until a step, the first one being 1."""
    with monkeypatch.context() as patched:
        patched.setattr("deql.models.training.estimator.stages", killing(step)[0])
        with pytest.raises(Killed):
            model.fit(data, **given)


def count_steps(monkeypatch, model, data=DATA, **given):
    stages, told = killing()
    with monkeypatch.context() as patched:
        patched.setattr("deql.models.training.estimator.stages", stages)
        model.fit(data, **given)
    return len(told)


GIVEN = {
    "plain": ({}, {}),
    "validation": ({}, {"validation": SPLIT.validation}),
    "validation and patience": ({"patience": 2, "epochs": 12}, {"validation": SPLIT.validation}),
    "patience alone": ({"patience": 4}, {}),
}


@pytest.mark.usefixtures("at_once")
class TestResuming:
    @pytest.mark.parametrize("given", GIVEN)
    @pytest.mark.parametrize("kind", KINDS)
    def test_gives_what_was_not_interrupted_to_the_last_bit(self, monkeypatch, kind, given, path):
        """Killed twice: in the first half, and before the end."""
        parameters, named = GIVEN[given]
        data = SPLIT.train if named else DATA
        whole = small(kind, **parameters)
        steps = count_steps(monkeypatch, whole, data, **named)
        kill(monkeypatch, small(kind, checkpoint=path, **parameters), steps // 2 - 1, data, **named)
        kill(monkeypatch, small(kind, checkpoint=path, **parameters), steps // 4, data, **named)
        found = small(kind, checkpoint=path, **parameters).fit(data, **named)
        assert facts_of(found) == facts_of(whole)

    def test_does_not_begin_anew(self, monkeypatch, path):
        whole = count_steps(monkeypatch, small())
        of_an_epoch = whole // 6
        kill(monkeypatch, small(checkpoint=path), 4 * of_an_epoch + 2)
        assert count_steps(monkeypatch, small(checkpoint=path)) == 2 * of_an_epoch

    @pytest.mark.parametrize("step", [1, 5, 8])
    def test_from_any_step(self, monkeypatch, step, path):
        """Also where no epoch was done."""
        kill(monkeypatch, small(checkpoint=path, epochs=2), step)
        assert facts_of(small(checkpoint=path, epochs=2).fit(DATA)) == facts_of(small(epochs=2).fit(DATA))

    def test_of_a_training_with_stronger_epochs_before_keeps_the_best(self, monkeypatch, path):
        """The best epoch is before the kill, and the resumed ones are worse."""
        worth = iter([0.1, 0.9, 0.3, 0.2, 0.5, 0.4])
        network, config = LightGCNNetwork(graph_of(TASTES), 1, 0.0), replace(CONFIG, epochs=6, last_epoch=6)
        whole = trainer.train(network, config, lambda found: next(worth))
        worth = iter([0.1, 0.9, 0.3, 0.2, 0.5, 0.4])
        checkpoint = checkpoints.Checkpoint(path, {"model": "this one"})

        def report(done, total):
            if done == total - 5:
                raise Killed

        with pytest.raises(Killed):
            trainer.train(network, config, lambda found: next(worth), checkpoint, report)
        found = trainer.train(network, config, lambda found: next(worth), checkpoint)
        assert found.epochs == whole.epochs == 2
        assert [part.tobytes() for part in found[:3]] == [part.tobytes() for part in whole[:3]]
        assert [epoch.ndcg for epoch in found.history] == [0.1, 0.9, 0.3, 0.2, 0.5, 0.4]

    @pytest.mark.parametrize("given", GIVEN)
    def test_leaves_no_checkpoint_when_it_is_done(self, given, path):
        parameters, named = GIVEN[given]
        small(checkpoint=path, **parameters).fit(SPLIT.train, **named)
        assert not list(path.parent.iterdir())

    def test_takes_numbers_of_numpy(self, monkeypatch, path):
        numbers = {"rank": np.int64(4), "seed": np.uint32(2), "weight_decay": np.float32(0.25)}
        plain = {name: number.item() for name, number in numbers.items()}
        kill(monkeypatch, small(checkpoint=path, **numbers), 20)
        assert facts_of(small(checkpoint=path, **plain).fit(DATA)) == facts_of(small(**plain).fit(DATA))


def test_the_number_of_epochs_is_not_chosen_again(monkeypatch, path):
    """Chosen again it could be another one, on CUDA, and the checkpoint that of another training."""
    whole, train = small(patience=4).fit(DATA), trainer.train
    with monkeypatch.context() as patched:
        calls = iter([train])
        patched.setattr(trainer, "train", lambda *given: next(calls, lambda *given: raise_killed())(*given))
        with pytest.raises(Killed):
            small(patience=4, checkpoint=path).fit(DATA)
    steps = count_steps(monkeypatch, small(epochs=whole.epochs_))
    assert count_steps(monkeypatch, small(patience=4, checkpoint=path)) == steps
    assert facts_of(small(patience=4, checkpoint=path).fit(DATA)) == facts_of(whole)


def raise_killed():
    raise Killed


def test_checkpoints_are_not_written_all_the_time(monkeypatch, path):
    kill(monkeypatch, small(checkpoint=path), 20)
    assert not path.exists()


@pytest.fixture
def killed(monkeypatch, at_once, path):
    """The file that a training on ``SPLIT.train`` left when it was killed."""
    kill(monkeypatch, small(checkpoint=path), 20, SPLIT.train, validation=SPLIT.validation)
    return path


def assert_refused(path, words, model=None, data=SPLIT.train, validation=SPLIT.validation):
    """In one sentence, and the file stays as it was."""
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=words) as caught:
        (model or small(checkpoint=path)).fit(data, validation=validation)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert path.read_bytes() == before


class TestForeignCheckpoints:
    @pytest.mark.parametrize(
        ("changed", "named"),
        [
            ({"rank": 5}, "rank"),
            ({"learning_rate": 0.04}, "learning_rate"),
            ({"seed": 1}, "seed"),
            ({"batch_size": 63, "layers": 2}, "layers, batch_size|batch_size, layers"),
            ({"weight_decay": 0.0}, "weight_decay"),
            ({"epochs": 7}, "epochs, last_epoch"),
            ({"patience": 3}, "patience"),
            ({"validate_every": 3}, "validate_every"),
            ({"popularity_power": 0.5}, "popularity_power"),
        ],
    )
    def test_of_other_parameters(self, killed, changed, named):
        words = (
            f"is the checkpoint of another training, which differs in .*({named}).*: name another file, or remove it"
        )
        assert_refused(killed, words, small(checkpoint=killed, **changed))

    def test_of_another_model(self, killed):
        assert_refused(killed, "another training, which differs in .*model", small("SGL", checkpoint=killed))

    def test_of_other_data(self, killed):
        matrix = SPLIT.train.matrix.copy()
        matrix.data[7] += 1
        assert_refused(killed, "which differs in data: name another", data=replace(SPLIT.train, matrix=matrix))

    def test_of_other_held_out_items(self, killed):
        held_out = SPLIT.validation.held_out
        other = HeldOut(SPLIT.validation.seen, replace(held_out, matrix=csr_array(held_out.matrix[::-1])))
        assert_refused(killed, "which differs in validation: name another", validation=other)

    def test_of_other_histories_of_the_same_users(self, killed):
        seen = SPLIT.validation.seen
        other = HeldOut(replace(seen, matrix=csr_array(seen.matrix[::-1])), SPLIT.validation.held_out)
        assert_refused(killed, "which differs in validation: name another", validation=other)

    def test_of_a_training_with_validation(self, killed):
        assert_refused(killed, "which differs in validation: name another", validation=None)

    def test_of_a_training_without_validation(self, monkeypatch, at_once, path):
        kill(monkeypatch, small(checkpoint=path), 20, SPLIT.train)
        assert_refused(path, "which differs in validation: name another")

    def test_that_are_other_files(self, path, tmp_path):
        deql.Popularity().fit(DATA).save(path)
        assert_refused(path, "is not a deql checkpoint file but a model file")
        path.write_text("my notes\n" * 50)
        assert_refused(path, "is not a deql checkpoint file")
        path.write_bytes(b"")
        assert_refused(path, "is not a deql checkpoint file")

    def test_that_are_folders(self, tmp_path):
        with pytest.raises(CheckpointError, match=f"^{tmp_path} is a folder: name a file for the checkpoint$"):
            small(checkpoint=tmp_path).fit(DATA)

    @pytest.mark.parametrize("name", ["nowhere/a.ckpt", "a" * 300, "a\0b"])
    def test_that_cannot_be_written_are_refused_before_the_training(self, name, tmp_path):
        with pytest.raises(CheckpointError, match="cannot be written: "):
            small(checkpoint=tmp_path / name).fit(DATA)

    def test_of_others_stay(self, tmp_path):
        """Whatever is there under the name that a choice of epochs would take."""
        (tmp_path / "a.ckpt.choosing").write_text("notes")
        small(checkpoint=tmp_path / "a.ckpt").fit(DATA)
        assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt.choosing"]

    def test_are_not_read_as_models(self, killed):
        with pytest.raises(deql.errors.ModelFileError, match="is not a deql model file but a checkpoint file"):
            deql.load(killed)


class TestDamagedCheckpoints:
    @pytest.mark.parametrize("share", [0.01, 0.3, 0.9, 0.999])
    def test_that_were_cut_off(self, killed, share):
        whole = killed.read_bytes()
        killed.write_bytes(whole[: int(len(whole) * share)])
        assert_refused(killed, "is not a deql checkpoint file, or is damaged or cut short|is damaged")

    def test_with_a_bit_that_is_another(self, killed):
        whole = bytearray(killed.read_bytes())
        whole[-100] ^= 4
        killed.write_bytes(whole)
        assert_refused(killed, "is damaged: its checksum does not match; restore it or remove it to begin anew")

    def test_of_a_newer_version(self, killed, monkeypatch):
        metadata, arrays = contents(killed)
        kind = replace(checkpoints._kind(), version=2)
        container.write(kind, killed, metadata | {"format_version": "2"}, arrays)
        assert_refused(killed, "has format version 2, .*: update deql")

    @pytest.mark.parametrize("name", ["vectors", "mean_gradients", "mean_squares"])
    def test_without_one_of_the_arrays(self, killed, name):
        metadata, arrays = contents(killed)
        rewrite(killed, metadata, {key: array for key, array in arrays.items() if key != name})
        assert_refused(killed, f"is damaged: .*{name}.*; remove it to begin anew")

    @pytest.mark.parametrize("name", ["vectors", "mean_squares", "best_vectors"])
    def test_with_an_array_of_another_shape(self, killed, name):
        metadata, arrays = contents(killed)
        rewrite(killed, metadata, arrays | {name: arrays[name][:-1]})
        assert_refused(killed, "is damaged: its vectors are of another shape; remove it to begin anew")

    @pytest.mark.parametrize("facts", ["{}", "[1, 2]", '{"steps": 3, "kept": 1, "history": [[1]]}', "null"])
    def test_with_other_facts(self, killed, facts):
        metadata, arrays = contents(killed)
        rewrite(killed, metadata | {"facts": facts}, arrays)
        assert_refused(killed, "is damaged: .*; remove it to begin anew")

    @pytest.mark.parametrize("changed", [{"facts": None}, {"facts": "{"}, {"training": "{"}, {"training": "[1]"}])
    def test_with_metadata_that_say_nothing(self, killed, changed):
        metadata, arrays = contents(killed)
        rewrite(killed, {name: text for name, text in (metadata | changed).items() if text is not None}, arrays)
        assert_refused(killed, "remove it")


def contents(path):
    metadata, arrays = container.read(checkpoints._kind(), path)
    return metadata, {name: np.array(array) for name, array in arrays.items()}


def rewrite(path, metadata, arrays):
    """With a checksum that matches."""
    container.write(checkpoints._kind(), path, metadata, arrays)


class TestEarlyStopping:
    @pytest.mark.parametrize("kind", KINDS)
    def test_keeps_the_best_epoch(self, kind):
        model = small(kind, epochs=60, patience=5, validate_every=1).fit(SPLIT.train, validation=SPLIT.validation)
        values = [epoch.ndcg for epoch in model.history_]
        assert model.epochs_ == 1 + int(np.argmax(values))
        assert len(values) == model.epochs_ + 5 < 60
        assert deql.evaluate(model, SPLIT.validation).means["ndcg@20"] == pytest.approx(max(values), rel=1e-6)

    def test_of_equals_keeps_the_first(self):
        worth = iter([0.2, 0.7, 0.7, 0.1])
        found = trainer.train(LightGCNNetwork(graph_of(TASTES), 1, 0.0), CONFIG, lambda factors: next(worth))
        assert (found.epochs, len(found.history)) == (2, 4)

    def test_without_patience_runs_to_the_end_and_keeps_the_best(self):
        model = small(epochs=30).fit(SPLIT.train, validation=SPLIT.validation)
        values = [epoch.ndcg for epoch in model.history_]
        looked = [epoch + 1 for epoch, value in enumerate(values) if value is not None]
        assert looked == list(range(2, 31, 2))
        assert model.epochs_ == looked[int(np.argmax([values[epoch - 1] for epoch in looked]))] < 30

    @pytest.mark.parametrize(("epochs", "looked"), [(7, [3, 6, 7]), (2, [2]), (6, [3, 6])])
    def test_looks_every_so_many_epochs_and_at_the_last(self, epochs, looked):
        model = small(epochs=epochs, validate_every=3).fit(SPLIT.train, validation=SPLIT.validation)
        found = [place + 1 for place, epoch in enumerate(model.history_) if epoch.ndcg is not None]
        assert found == looked

    def test_with_little_patience_still_looks_before_it_ends(self):
        """Else nothing tells that an epoch was no better."""
        model = small(epochs=12, patience=2, validate_every=5).fit(SPLIT.train, validation=SPLIT.validation)
        assert any(epoch.ndcg is not None for epoch in model.history_)

    def test_looking_changes_nothing_of_the_training(self):
        plain, watched = (
            [epoch.loss for epoch in small("SGL").fit(SPLIT.train, **given).history_]
            for given in ({}, {"validation": SPLIT.validation})
        )
        assert plain == watched

    @pytest.mark.parametrize("kind", KINDS)
    def test_without_validation_chooses_the_epochs_and_trains_on_all(self, kind):
        model = small(kind, epochs=40, patience=4, seed=2).fit(DATA)
        split = split_weak(DATA, 0.1, 0, 2)
        chosen = small(kind, epochs=40, patience=4, seed=2).fit(split.train, validation=split.test)
        assert facts_of(model)[3:] == facts_of(chosen)[3:]
        assert model.epochs_ < 40
        assert len(model.own_) == DATA.n_users

    def test_trains_on_all_as_a_longer_training_would_begin(self, monkeypatch):
        """With the learning rates of ``epochs``, whatever number of them was chosen."""
        model = small(epochs=40, patience=4).fit(DATA)
        states, factors = [], trainer._factors
        monkeypatch.setattr(trainer, "_factors", lambda *given: states.append(factors(*given)) or states[-1])
        small(epochs=40, validate_every=1).fit(DATA, validation=SPLIT.validation)
        np.testing.assert_array_equal(states[model.epochs_ - 1].right.numpy(), model.right_)

    def test_judges_users_by_what_is_known_of_them(self):
        """Users without a vector of their own, without a history, or with nothing held out, and unknown items."""
        for split, known in ((STRONG, False), (SPLIT, True)):
            seen, held_out = (part.matrix.toarray() for part in (split.validation.seen, split.validation.held_out))
            assert np.isin(split.validation.seen.users, split.train.users).all() == known
            if not known:
                seen[:2] = 0
            held_out[4:6] = 0
            items = np.array(["new" if item == "item 8" else item for item in DATA.items.tolist()], object)
            users = split.validation.seen.users
            parts = (deql.Interactions.from_csr(csr_array(part), users, items) for part in (seen, held_out))
            validation = HeldOut(*parts)
            with pytest.warns(UserWarning, match="new"):
                model = small(epochs=2, popularity_power=0.3).fit(split.train, validation=validation)
            with pytest.warns(UserWarning, match="new"):
                expected = deql.evaluate(model, validation).means["ndcg@20"]
            assert model.history_[-1].ndcg == pytest.approx(expected, rel=1e-6)

    def test_judges_users_without_a_vector_or_a_history_by_popularity(self):
        """Users of the training data, without an item in it: nothing was learned of them."""
        train, seen = (part.matrix.toarray() for part in (SPLIT.train, SPLIT.validation.seen))
        for part, users in ((train, SPLIT.train.users), (seen, SPLIT.validation.seen.users)):
            part[np.isin(users, SPLIT.validation.seen.users[:30])] = 0
        data, histories = (
            replace(part, matrix=csr_array(dense))
            for part, dense in ((SPLIT.train, train), (SPLIT.validation.seen, seen))
        )
        validation = HeldOut(histories, SPLIT.validation.held_out)
        model = small(epochs=2).fit(data, validation=validation)
        expected = deql.evaluate(model, validation).means["ndcg@20"]
        assert model.history_[-1].ndcg == pytest.approx(expected, rel=1e-6)


def test_a_loss_that_is_no_number_ends_the_training():
    class Broken(Numbered):
        def loss(self, E, pairs):
            return super().loss(E, pairs) * np.nan

    words = r"no longer a number in epoch 1: lower learning_rate from 0\.05, or weight_decay$"
    with pytest.raises(DataError, match=words):
        trainer.train(Broken(graph_of(TASTES), 0), CONFIG)
