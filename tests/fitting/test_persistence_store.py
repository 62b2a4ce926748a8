import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from counterpath.fitting import persistence
from counterpath.fitting.persistence import FORMAT, VERSION, load, save
from counterpath.utils.errors import InputError, StoreError
from tests.sizes import examples

NAMES = ("config.json", "manifest.json", "weights.safetensors")
CONFIG = {"method": "rsgd-c", "σ": 1.5, "layers": [16, 8], "bounds": {"age": None, "sex": True}, "text": 'a\n"b" 漢'}


def _tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "float32": torch.randn(5, 3, generator=generator),
        "float64": torch.randn(4, generator=generator, dtype=torch.float64),
        "int64": torch.tensor([[2**63 - 1, -(2**63)], [0, -1]]),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(1.5),
        "empty": torch.zeros(0, 3),
        "odd": torch.tensor([float("nan"), float("inf"), -0.0, 1e-45]),
    }


def _bits(tensors: dict[str, Tensor]) -> dict[str, tuple[Any, ...]]:
    return {name: (t.dtype, tuple(t.shape), t.detach().numpy().tobytes()) for name, t in tensors.items()}


def _saved(folder: Path) -> Path:
    return save(folder, CONFIG, _tensors())


def _circle() -> dict[str, Any]:
    circle: dict[str, Any] = {}
    circle["a"] = [circle]
    return {"a": circle}


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _sign(folder: Path) -> None:
    """Make the manifest fit the files, as whoever forges a model would."""
    entries = {}
    for name in ("config.json", "weights.safetensors"):
        content = (folder / name).read_bytes()
        entries[name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    text = json.dumps({"format": FORMAT, "version": VERSION, "files": entries}, indent=2) + "\n"
    (folder / "manifest.json").write_text(text)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that no test changes."""
    return _saved(tmp_path_factory.mktemp("whole") / "model")


# Round trips


def test_a_model_comes_back_bit_by_bit(tmp_path: Path) -> None:
    folder = save(tmp_path / "deep" / "model", CONFIG, _tensors())
    config, tensors = load(folder)
    assert config == CONFIG
    assert _bits(tensors) == _bits(_tensors())
    assert tuple(sorted(os.listdir(folder))) == NAMES
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_nothing_at_all_is_a_model_too(tmp_path: Path) -> None:
    assert load(save(tmp_path / "model", {}, {})) == ({}, {})


def test_tensors_may_be_views_parameters_and_share_memory(tmp_path: Path) -> None:
    base = torch.arange(12.0).view(3, 4)
    tensors = {
        "whole": base,
        "same": base,
        "transposed": base.T,
        "row": base[1],
        "every other": base[:, ::2],
        "expanded": torch.ones(1).expand(3),
        "negative view": torch.tensor([1 + 2j]).conj().imag,
        "parameter": torch.nn.Parameter(base.clone()),
    }
    _, loaded = load(save(tmp_path / "model", {}, tensors))
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    loaded["same"].zero_()
    assert torch.equal(loaded["whole"], base)


def test_tensors_are_put_on_the_device(whole: Path) -> None:
    assert {tensor.device.type for tensor in load(whole, "meta")[1].values()} == {"meta"}


def test_a_relative_path_and_a_link_lead_to_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("model")
    assert _saved(Path("link")) == tmp_path / "model"
    _saved(Path("link"))
    assert (tmp_path / "link").is_symlink()
    assert load(Path("link"))[0] == load(Path("model"))[0] == CONFIG


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"a": [float("nan")]}, "cannot be written as JSON"),
        ({"a": float("inf")}, "cannot be written as JSON"),
        ({"a": torch.zeros(2)}, "Tensor is not JSON serializable.*put arrays among the tensors"),
        ({"a": "\ud800"}, "cannot be written as JSON"),
        (_circle(), "Circular reference"),
        ({"a": [{"b": {1: "x"}}]}, r"the config\['a'\]\[0\]\['b'\] has the key 1, .*: use '1'"),
    ],
)
def test_a_config_that_would_not_come_back_is_refused(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        save(tmp_path / "model", config, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "tensors",
    [
        {"a": torch.eye(2).to_sparse()},
        {"a": torch.zeros(2, device="meta")},
        {"a": torch.zeros(2, dtype=torch.complex128)},
        {"__metadata__": torch.zeros(2)},
    ],
)
def test_tensors_that_would_not_come_back_are_refused(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    _saved(tmp_path / "model")
    before = _content(tmp_path)
    with pytest.raises(InputError, match="cannot be written as safetensors"):
        save(tmp_path / "model", {}, tensors)
    assert _content(tmp_path) == before


# What is not a model


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no folder .*model: check the path"):
        load(tmp_path / "model")


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _saved(tmp_path / "model")

    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(StoreError, match=r"manifest\.json cannot be read \(Permission denied\): check"):
        load(folder)


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"format": "other-model", "version": 1}',
        b'{"format": NaN}',
        b"[" * 100_000,
        b"1" * 10_000,
        b"\xff",
    ],
)
def test_a_foreign_folder_is_not_a_model_and_is_not_replaced(tmp_path: Path, manifest: bytes | None) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "thesis.txt").write_text("the only copy")
    if manifest is not None:
        (folder / "manifest.json").write_bytes(manifest)
    _insist_foreign(folder)


def test_a_file_is_not_a_model_and_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("the only copy")
    _insist_foreign(tmp_path / "model")


def _insist_foreign(folder: Path) -> None:
    before = _content(folder.parent)
    with pytest.raises(StoreError, match=r"model is not a Counterpath model \(.*\): choose a folder"):
        load(folder)
    with pytest.raises(InputError, match=r"nothing was saved, .*model is not a Counterpath model \(.*new or empty"):
        _saved(folder)
    assert _content(folder.parent) == before


def test_files_beside_the_model_are_ignored_by_load_and_not_lost_by_save(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "model")
    (folder / "weights.pkl").write_bytes(b"\x80\x04garbage")
    (folder / "notes.txt").write_text("the only copy")
    assert load(folder)[0] == CONFIG
    before = _content(folder)
    with pytest.raises(InputError, match=r"holds notes\.txt, weights\.pkl, which would be lost"):
        _saved(folder)
    assert _content(folder) == before


def test_the_working_directory_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"is the working directory .* for instance .*model"):
        _saved(Path())
    assert list(tmp_path.iterdir()) == []


# Damage


@settings(max_examples=examples(400), deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_found(whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    content = bytearray((whole / name).read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    _insist_refused(_with(tmp_path_factory, whole, name, bytes(content)), name)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_a_truncated_or_longer_file_is_found(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(NAMES))
    content = (whole / name).read_bytes()
    shorter = st.integers(0, len(content) - 1).map(lambda length: content[:length])
    longer = st.binary(min_size=1, max_size=9).map(lambda tail: content + tail)
    folder = _with(tmp_path_factory, whole, name, data.draw(shorter | longer))
    _insist_refused(folder, name, "truncated" if name != "manifest.json" else "")


def test_every_byte_of_the_manifest_counts(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing vouches for the manifest: white space, order and case must be as they were written."""
    content = (whole / "manifest.json").read_bytes()
    folder = _with(tmp_path_factory, whole, "manifest.json", content)
    for position in range(len(content)):
        for byte in {*b" \t\n0aA", content[position] ^ 0x20, content[position] ^ 1} - {content[position]}:
            changed = content[:position] + bytes([byte]) + content[position + 1 :]
            (folder / "manifest.json").write_bytes(changed)
            with pytest.raises(StoreError):
                load(folder)


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_a_forged_model_is_read_or_refused_and_nothing_else_happens(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """With a manifest that fits, the parsers are on their own."""
    name = data.draw(st.sampled_from(["config.json", "weights.safetensors"]))
    content = bytearray((whole / name).read_bytes())
    header = len(content) if name == "config.json" else 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    folder = _with(tmp_path_factory, whole, name, bytes(content))
    _sign(folder)
    with suppress(StoreError):
        load(folder)
    shutil.rmtree(folder.parent)


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = _saved(tmp_path / "model")
    (folder / name).unlink()
    with pytest.raises(StoreError, match=f"{name} is missing: restore"):
        load(folder)
    (folder / name).mkdir()
    with pytest.raises(StoreError, match=f"{name} is missing: restore"):
        load(folder)


def test_a_newer_version_asks_for_an_upgrade(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "model")
    (folder / "manifest.json").write_text(json.dumps({"format": FORMAT, "version": VERSION + 6, "whatever": []}))
    with pytest.raises(StoreError, match=rf"version {VERSION + 6}, .* up to version {VERSION}: upgrade"):
        load(folder)


def test_a_version_from_before_the_first_release_is_refused(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "model")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "version": VERSION - 1}, indent=2) + "\n")
    with pytest.raises(StoreError, match=rf"version {VERSION - 1}, from before the first release.* fit it again"):
        load(folder)


@pytest.mark.parametrize("version", [0, -1, True, 1.5, "1", None])
def test_a_version_that_never_was_is_damage(tmp_path: Path, version: object) -> None:
    folder = _saved(tmp_path / "model")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "version": version}, indent=2) + "\n")
    with pytest.raises(StoreError, match=r"manifest\.json is damaged: its version is"):
        load(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "weights.pkl"])
def test_a_manifest_cannot_point_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("{}")
    folder = _saved(tmp_path / "model")
    manifest = json.loads((folder / "manifest.json").read_text())
    entry = {"size": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    replaced = {name: entry, "weights.safetensors": manifest["files"]["weights.safetensors"]}
    for files in (replaced, {**manifest["files"], name: entry}, [], None, {}):
        (folder / "manifest.json").write_text(json.dumps({**manifest, "files": files}, indent=2) + "\n")
        with pytest.raises(StoreError, match=r"manifest\.json is damaged: it lists"):
            load(folder)


@pytest.mark.parametrize("entry", [None, 1, [], {}, {"size": 1}, {"size": 1, "sha256": "", "path": "../secret"}])
def test_an_entry_that_says_something_else_is_damage(tmp_path: Path, entry: object) -> None:
    folder = _saved(tmp_path / "model")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["config.json"] = entry
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    with pytest.raises(StoreError, match=r"manifest\.json is damaged: it says .* of config\.json"):
        load(folder)


@pytest.mark.parametrize("config", [b"[]", b"null", b"1", b'{"a": NaN}', b"{", b"\xff", b"[" * 100_000])
def test_a_config_must_be_a_json_object(tmp_path: Path, config: bytes) -> None:
    folder = _saved(tmp_path / "model")
    (folder / "config.json").write_bytes(config)
    _sign(folder)
    with pytest.raises(StoreError, match=r"config\.json is not a JSON object: restore"):
        load(folder)


def _with(factory: pytest.TempPathFactory, whole: Path, name: str, content: bytes) -> Path:
    folder = factory.mktemp("damaged") / "model"
    shutil.copytree(whole, folder)
    (folder / name).write_bytes(content)
    return folder


def _insist_refused(folder: Path, name: str, reason: str = "") -> None:
    with pytest.raises(StoreError) as caught:
        load(folder)
    if name != "manifest.json":  # what it says of the others may be what is damaged
        assert f"{name} is " in str(caught.value)
        assert reason in str(caught.value)
    shutil.rmtree(folder.parent)


# Pickles


class _Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_the_bomb_would_go_off(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(_Bomb(tmp_path / "bang")))
    assert (tmp_path / "bang").exists()


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("form", ["0", "1", "2", "3", "4", "5", "zip", "legacy"])
@pytest.mark.parametrize("name", NAMES)
def test_pickles_are_never_loaded(tmp_path: Path, name: str, form: str, signed: bool) -> None:
    folder = _saved(tmp_path / "model")
    bomb = _Bomb(tmp_path / "bang")
    if form.isdigit():
        (folder / name).write_bytes(pickle.dumps(bomb, protocol=int(form)))
    else:
        torch.save(bomb, folder / name, _use_new_zipfile_serialization=form == "zip")
    if signed and name != "manifest.json":
        _sign(folder)
    with pytest.raises(StoreError, match=name) as caught:
        load(folder)
    assert not (tmp_path / "bang").exists()
    assert ("pickles are never loaded" in str(caught.value)) == (form not in ("0", "1"))  # these have no mark


def test_damaged_weights_are_not_taken_for_a_pickle(tmp_path: Path) -> None:
    """A header of 640 bytes begins like a pickle of protocol 2."""
    lengths = (n for n in range(500, 640) if safetensors.save({"a" * n: torch.zeros(2)})[:2] == b"\x80\x02")
    folder = save(tmp_path / "model", {}, {"a" * next(lengths): torch.zeros(2)})
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"weights\.safetensors is truncated") as caught:
        load(folder)
    assert "pickle" not in str(caught.value)


# Replacing a model


def test_a_model_is_replaced_whole(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "model")
    save(folder, {"new": 1}, {"b": torch.ones(1)})
    config, tensors = load(folder)
    assert config == {"new": 1}
    assert list(tensors) == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_empty_folder_and_a_damaged_model_are_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    _saved(folder)
    (folder / "weights.safetensors").write_bytes(b"")
    _saved(folder)
    assert load(folder)[0] == CONFIG
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_empty_folder_is_not_put_aside_as_if_it_were_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets: list[Path] = []
    original = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, target: (targets.append(target), original(path, target)))
    (tmp_path / "model").mkdir()
    _saved(tmp_path / "model")
    assert targets == [tmp_path / "model"]


def test_leftovers_of_this_name_are_swept_and_no_others(tmp_path: Path) -> None:
    kept = ["model[1]x", ".model1.counterpath-new-01234567", ".model[1].counterpath-new-mine", ".model[1].old"]
    left = [".model[1].counterpath-new-01234567", ".model[1].counterpath-new-89abcdef"]
    for name in kept + left:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("half")
    _saved(tmp_path / "model[1]")
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "model[1]"}


@pytest.mark.parametrize("empty", [False, True])
def test_a_model_left_aside_is_loaded_and_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    folder = _saved(tmp_path / "model")
    folder.rename(tmp_path / ".model.counterpath-old")
    if empty:
        folder.mkdir()
    assert load(folder)[0] == CONFIG
    monkeypatch.setattr(Path, "write_bytes", _full_disk)
    with pytest.raises(OSError, match="No space left"):
        save(folder, {"new": 1}, {})
    assert tuple(sorted(os.listdir(folder))) == NAMES
    assert load(folder)[0] == CONFIG


def _full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("failing", [1, 2])
def test_a_full_disk_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    folder = _saved(tmp_path / "model")
    before = _content(tmp_path)
    calls = 0

    def write(path: Path, content: bytes) -> int:
        nonlocal calls
        calls += 1
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        return _full_disk() if calls == failing else original(path, content)

    original = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(OSError, match="No space left"):
        save(folder, {"new": 1}, {})
    assert calls == failing
    assert _content(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_disk_that_gets_full_with_the_weights_leaves_the_old_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _saved(tmp_path / "model")
    before = _content(tmp_path)

    def write(tensors: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(persistence.safetensors, "save_file", write)
    with pytest.raises(OSError, match=r"weights.*No space left"):
        save(folder, {"new": 1}, {})
    assert _content(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_rename_that_fails_leaves_the_old_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    folder = _saved(tmp_path / "model")
    before = _content(tmp_path)
    renamed: list[str] = []

    def rename(path: Path, target: Path) -> Path:
        renamed.append(path.name)
        return original(path, target) if len(renamed) != failing else _full_disk()

    original = Path.rename
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="No space left"):
        save(folder, {"new": 1}, {})
    assert len(renamed) >= failing
    assert _content(tmp_path) == before


def test_everything_is_on_the_disk_before_the_old_model_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _saved(tmp_path / "model")
    synced: list[int] = []
    at_rename: list[set[int]] = []
    at_removal: list[set[int]] = []

    def rename(path: Path, target: Path) -> Path:
        at_rename.append(set(synced))
        return original(path, target)

    original, rmtree, fsync = Path.rename, shutil.rmtree, os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), fsync(handle)))
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(shutil, "rmtree", lambda path: (at_removal.append(set(synced)), rmtree(path)))
    _saved(folder)
    assert at_rename[0] == {path.stat().st_ino for path in (folder, *folder.iterdir())}
    assert at_removal == [at_rename[0] | {tmp_path.stat().st_ino}]


# Kill -9. A fork of a process that has loaded torch costs milliseconds, a new one seconds.

_KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch
from counterpath.fitting.persistence import load, save

torch.set_num_threads(1)
folder = Path(sys.argv[1]) / "model"
CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "shutil.rmtree", "os.listdir"}

def put(number):
    save(folder, {"number": number}, {"a": torch.full((2000,), number), "b": torch.full((3,), float(number))})

def get():
    config, tensors = load(folder)
    values = {config["number"], *tensors["a"].tolist(), *tensors["b"].tolist()}
    assert len(values) == 1, "a mixture of two models"
    return config["number"]

def at_every_operation():
    "Kill a save right before its first, second, ... operation on the file system; return what was left under the name."
    found = []
    for moment in range(1000):
        put(0)
        assert os.listdir(folder.parent) == ["model"], "leftovers were not swept"
        child = os.fork()
        if child == 0:
            seen = 0
            def hook(event, _):
                nonlocal seen
                seen += event in CHANGES
                if seen > moment and event != "os.kill":
                    os.kill(os.getpid(), signal.SIGKILL)
            sys.addaudithook(hook)
            put(1)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        found.append((get(), folder.exists()))
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return found

def at_random_moments(kills):
    "Kill a process that saves again and again; each time the last model it had saved, or the one after, must be there."
    dice, found = random.Random(0), []
    put(0)
    for _ in range(kills):
        first, (reader, writer) = get(), os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)  # so that it ends by itself when nobody is there to kill it
            for number in range(first + 1, 1_000_000):
                put(number)
                os.write(writer, b".")
        os.close(writer)
        assert os.read(reader, 1)  # the first is saved: now kill it somewhere in the next
        time.sleep(dice.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        last = first + 1
        while dots := os.read(reader, 4096):
            last += len(dots)
        os.close(reader)
        assert get() in (last, last + 1), (get(), last)
        found.append(last - first)
    put(0)
    assert os.listdir(folder.parent) == ["model"], "leftovers were not swept"
    return found

print(json.dumps(at_every_operation() if sys.argv[2] == "every" else at_random_moments(int(sys.argv[2]))))
"""


def _killed(tmp_path: Path, mode: str) -> list[Any]:
    command = [sys.executable, "-c", _KILLED, str(tmp_path), mode]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_kill_9_before_every_operation_leaves_the_old_or_the_new_model(tmp_path: Path) -> None:
    found = _killed(tmp_path, "every")
    numbers = [number for number, _ in found]
    assert numbers == sorted(numbers), "once the new model is there, the old one never comes back"
    assert numbers[0] == 0
    assert numbers[-1] == 1
    assert numbers.count(0) > 5, "the saves were killed too late: the test tests nothing"
    assert numbers.count(1) > 3, "the saves were killed too early: the test tests nothing"
    assert [0, False] in found, "no save was killed between its two renames: the test tests nothing"


@pytest.mark.slow
def test_kill_9_at_ten_random_moments_leaves_the_last_model_or_the_one_after(tmp_path: Path) -> None:
    assert len(_killed(tmp_path, "10")) == 10
