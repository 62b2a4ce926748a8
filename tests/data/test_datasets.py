import dataclasses
import gzip
import hashlib
import lzma
import os
import re
import runpy
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest

from counterpath.data import datasets
from counterpath.data.constraints import Constraints
from counterpath.data.datasets import (
    DATASETS,
    SETS,
    Card,
    cache_folder,
    find,
    load,
    obtain,
    read_verified,
)
from counterpath.data.schema import Schema
from counterpath.utils.errors import InputError

CONTENT = b"a,b\n" + b"1,2\n" * 50_000
SMALL = hashlib.sha256(CONTENT).hexdigest()
# Read before a test changes the environment.
ROOT = Path(__file__).parents[2]
REFERENCE = Path(os.environ.get(datasets.VARIABLE) or ROOT.parent / "shared" / "data")


@pytest.fixture(autouse=True)
def _nothing_outside(monkeypatch, tmp_path):
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")


def reference(name: str) -> Path:
    file = find(name, REFERENCE) if REFERENCE.is_dir() else None
    if file is None:
        pytest.skip(f"no reference copy of {name}: set {datasets.VARIABLE} to a folder that holds {name}.csv.gz")
    return file


def whole(data: datasets.Dataset) -> pd.DataFrame:
    return pd.concat([data.train, data.test]).sort_index()


# Cards


@pytest.mark.parametrize("name", DATASETS)
def test_a_card_says_what_the_data_set_is(name):
    card = Card.of(name)
    schema = Schema.from_json(card.schema)
    assert card.name == name
    assert card.title
    assert card.description
    assert card.licence
    assert "https://" in card.source
    assert re.fullmatch("[0-9a-f]{64}", card.sha256)
    assert card.shipped is (SETS / f"{name}.csv.xz").is_file() or name == "adult-carla"
    assert card.task in ("classification", "regression")
    assert (card.desired_class in card.classes) is (card.task == "classification")
    assert set(schema.class_labels) <= set(map(str, card.classes))
    assert Constraints.of(schema, directions=card.directions).directions == card.directions


def test_every_card_is_of_a_data_set_that_can_be_loaded():
    assert {file.stem for file in SETS.glob("*.json")} == set(DATASETS)


FEATURES = [(name, feature) for name in DATASETS for feature in Schema.from_json(Card.of(name).schema)]


@pytest.mark.parametrize(("name", "feature"), FEATURES, ids=[f"{name}-{each.name}" for name, each in FEATURES])
def test_a_feature_is_described_for_people(name, feature):
    assert feature.description.endswith(".")
    if name in ("adult-carla", "gmc-carla"):  # they are for tables of the paper, not for people
        return
    assert feature.label
    assert bool(feature.phrase) is not feature.immutable
    if feature.phrase:
        shown = [feature.category_labels.get(str(each), str(each)) for each in feature.categories]
        assert len(set(shown)) == len(shown)
        assert "{new}" in feature.phrase
        assert "{old}" in feature.phrase
        assert not feature.phrase.endswith(".")


@pytest.mark.parametrize("name", DATASETS)
def test_every_row_is_legal(name):
    card = Card.of(name)
    data = load(name) if card.shipped else load(name, reference(card.file_name).parent)
    table = whole(data)
    assert len(table) == card.rows
    assert [column for column in table if column != card.target] == list(data.schema.names)
    assert table.notna().all(axis=None)
    if card.task == "classification":
        assert set(table[card.target]) == set(card.classes)
    features = table[list(data.schema.names)]
    encoder = data.encoder()
    encoded = encoder.encode(features)
    decoded = encoder.decode(encoded, features.index)
    for feature in data.schema:
        column = features[feature.name]
        assert feature.lower is None or column.min() >= feature.lower
        assert feature.upper is None or column.max() <= feature.upper
        assert not feature.categories or set(column) == set(feature.categories)
        if feature.kind == "continuous":
            continue
        pd.testing.assert_series_equal(decoded[feature.name], column, check_exact=True)
    assert (data.description, data.licence, data.source) == (card.description, card.licence, card.source)
    assert (data.sha256, data.directions, data.desired_class) == (card.sha256, card.directions, card.desired_class)


# Adult


def test_adult_is_the_census_as_published():
    data = load("adult")
    table = whole(data)
    assert table["income"].value_counts().to_dict() == {"<=50K": 37_155, ">50K": 11_687}
    assert (table["occupation"] == "?").sum() == 2_809
    assert data.schema["education"].kind == "ordinal"
    assert data.schema["education"].categories[::15] == ("Preschool", "Doctorate")
    assert data.schema.immutable == ("age", "fnlwgt", "race", "sex", "native-country")
    assert data.schema.not_actionable == ("marital-status", "relationship")
    assert data.schema.class_label("<=50K") == "≤50K"
    assert {feature.kind for feature in data.schema} == {"integer", "ordinal", "categorical", "binary"}


def test_a_category_that_no_training_row_has_joins_them():
    data = load("adult")
    assert (len(data.train), len(data.test)) == (36_632, 12_210)
    assert (data.train["native-country"] == "Holand-Netherlands").sum() == 1
    for feature in data.schema:
        assert not feature.categories or set(data.test[feature.name]) <= set(data.train[feature.name])


def test_adult_as_the_paper_has_it_is_the_published_table_byte_for_byte():
    text = whole(load("adult-carla")).to_csv(index=False, lineterminator="\n")
    assert hashlib.sha256(text.encode()).hexdigest() == Card.of("adult-carla").sha256


def test_adult_as_the_paper_has_it_equals_the_reference_copy():
    file, data = reference("adult"), load("adult-carla")
    pd.testing.assert_frame_equal(load("adult-carla", file).test, data.test)
    pd.testing.assert_frame_equal(load("adult-carla", file.parent).train, data.train)


def test_adult_is_split_as_in_the_paper():
    data = load("adult-carla")
    assert (len(data.train), len(data.test)) == (36_624, 12_208)
    assert (data.test[data.target] == 0).sum() == 9_268
    assert data.name == "adult-carla"
    assert data.schema.immutable == ("age", "race", "sex")
    assert [*data.schema.names, data.target] == list(data.train.columns)


def test_one_stands_for_the_category_that_the_paper_names():
    data = load("adult-carla")
    ones = {feature.categories[1] for feature in data.schema if feature.kind == "binary"}
    assert ones == {"Private", "Non-Married", "Other", "Non-Husband", "White", "Male", "US"}


def test_the_encoder_learns_from_the_training_rows_or_from_all():
    data = load("adult-carla")
    features = data.test[list(data.schema.names)]
    encoder = data.encoder()
    pd.testing.assert_frame_equal(encoder.decode(encoder.encode(features), features.index), features, check_exact=True)
    lowest = data.schema.index("fnlwgt")
    assert encoder.low[lowest] == data.train["fnlwgt"].min()
    assert data.encoder(rows="all").low[lowest] == whole(data)["fnlwgt"].min()


# German and Concrete


@pytest.mark.parametrize(("name", "file"), [("german", "german.data.gz"), ("concrete", "concrete.csv.gz")])
def test_shipped_tables_are_built_from_the_published_files(name, file, tmp_path):
    if not (REFERENCE / file).is_file():
        pytest.skip(f"no {file}: set {datasets.VARIABLE} to a folder that holds it")
    built = tmp_path / f"{name}.csv.xz"
    build = runpy.run_path(str(ROOT / "tools" / "build_datasets.py"))["main"]
    build(name, REFERENCE / file, built)
    pd.testing.assert_frame_equal(whole(load(name, built)), whole(load(name)))


def test_german_has_words_in_place_of_codes():
    table = whole(load("german"))
    first = table.iloc[0]
    assert (first["checking-account"], first["purpose"]) == ("under 0 DM", "radio or television")
    assert first["personal-status-sex"] == "male (single)"
    assert table["credit-risk"].value_counts().to_dict() == {"good": 700, "bad": 300}


def test_concrete_is_a_regression():
    data = load("concrete")
    assert (data.card.task, data.card.target_unit, data.desired_class) == ("regression", "MPa", None)
    assert whole(data)["strength"].iloc[0] == 79.99


# HELOC and COMPAS


def test_heloc_has_no_rows_without_a_record():
    data = load("heloc", path=reference("heloc_raw").parent)
    table = whole(data).drop(columns=data.target)
    assert len(table) == 10_459 - 588
    assert not (table == -9).all(axis=1).any()
    coded = {name for name in table if table[name].min() < 0}
    assert coded == {feature.name for feature in data.schema if feature.values == "observed"}


def test_heloc_is_to_be_had_from_its_owner():
    with pytest.raises(InputError, match=r"only its owner .*community\.fico\.com.*path=FILE.*heloc_raw\.csv\.gz"):
        load("heloc")


@pytest.mark.parametrize("name", ["heloc", "heloc-carla", "compas", "gmc", "gmc-carla"])
def test_a_folder_may_hold_all_that_is_not_shipped(name, monkeypatch):
    reference(Card.of(name).file_name)
    monkeypatch.setenv(datasets.VARIABLE, str(REFERENCE))
    assert len(whole(load(name))) == Card.of(name).rows


# Give Me Some Credit


def test_gmc_is_split_as_in_the_paper():
    data = load("gmc-carla", path=reference("gmc").parent)
    assert (len(data.train), len(data.test)) == (86_645, 28_882)
    assert (data.test[data.target] == 0).sum() == 1_913
    assert data.schema.immutable == ("age",)
    assert [*data.schema.names, data.target] == list(data.train.columns)
    features = data.test[list(data.schema.names)]
    encoder = data.encoder()
    decoded = encoder.decode(encoder.encode(features), features.index)
    assert (decoded.dtypes == features.dtypes).all()
    ranges = pd.Series(encoder.high, data.schema.names) - pd.Series(encoder.low, data.schema.names)
    assert ((decoded - features).abs() <= 1e-6 * ranges).all(axis=None)


def serve_gmc(monkeypatch, server):
    card = dataclasses.replace(Card.of("gmc"), url=f"{server.url}/gmc.csv")
    monkeypatch.setattr(Card, "of", lambda name: card)


def test_gmc_is_downloaded_once_and_then_read_from_the_cache(monkeypatch, server):
    server.files["/gmc.csv"] = gzip.decompress(reference("gmc").read_bytes())
    serve_gmc(monkeypatch, server)
    first = load("gmc")
    assert hashlib.sha256((cache_folder() / "gmc.csv").read_bytes()).hexdigest() == first.sha256
    pd.testing.assert_frame_equal(load("gmc").test, first.test)
    assert server.requests == ["/gmc.csv"]


def test_gmc_without_a_copy_and_without_a_server_says_how_to_provide_it(monkeypatch, server):
    serve_gmc(monkeypatch, server)
    with pytest.raises(InputError, match=r"404.*path=FILE.*COUNTERPATH_DATA.*or the file .*counterpath/gmc\.csv"):
        load("gmc")


# Finding files


def test_an_unknown_data_set_is_answered_with_the_known_ones():
    with pytest.raises(
        InputError, match=r"unknown data set 'adlut' \(did you mean 'adult'\?\); .*adult, adult-carla, german, gmc"
    ):
        load("adlut")


@pytest.mark.parametrize("name", DATASETS)
def test_a_path_that_leads_nowhere_is_named(name, tmp_path):
    file = Card.of(name).file_name
    with pytest.raises(InputError, match=f"path is {tmp_path}; expected the file {file}.csv or {file}.csv.gz"):
        load(name, tmp_path)
    with pytest.raises(InputError, match=f"path is {tmp_path}/none.csv"):
        load(name, str(tmp_path / "none.csv"))


@pytest.mark.parametrize("name", DATASETS)
def test_a_file_with_other_content_is_refused(name, tmp_path):
    file = tmp_path / f"{name}.csv"
    file.write_bytes(CONTENT)
    with pytest.raises(InputError, match=f"{file} is cut short or altered: its 200,004 bytes.*expected.*delete it"):
        load(name, file)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.xz"])
@pytest.mark.parametrize("folder", [True, False])
def test_the_environment_variable_names_a_file_or_a_folder(monkeypatch, tmp_path, suffix, folder):
    file = tmp_path / f"small{suffix}"
    file.write_bytes({".csv": bytes, ".csv.gz": gzip.compress, ".csv.xz": lzma.compress}[suffix](CONTENT))
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path if folder else file))
    assert obtain("small", "http://127.0.0.1:9/", SMALL) == file
    assert read_verified(file, SMALL) == CONTENT


def test_a_folder_without_the_file_leads_on_to_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path))
    cached = cache_folder() / "small.csv"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(CONTENT)
    assert obtain("small", "http://127.0.0.1:9/", SMALL) == cached


def test_the_cache_is_in_the_home_folder_by_default(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/counterpath")


@pytest.mark.parametrize("damage", [lambda packed: packed[:-100], lambda packed: packed[:20] + b"x" * 50 + packed[70:]])
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_damaged_archive_is_named(tmp_path, damage, pack):
    file = tmp_path / "small.csv.gz"
    file.write_bytes(damage(pack(CONTENT)))
    with pytest.raises(InputError, match=f"{file} is cut short or damaged .*delete it"):
        read_verified(file, SMALL)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match="none cannot be read: No such file"):
        read_verified(tmp_path / "none", SMALL)


# Downloading


class Server:
    """A web server of this machine: `files` by their path; `cut` sends half of each, `delay` waits before it."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.cut = False
        self.delay = 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                content = outer.files.get(self.path)
                if content is None:
                    return self.send_error(404)
                time.sleep(outer.delay)
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                return self.wfile.write(content[: len(content) // 2] if outer.cut else content)

            def log_message(self, *_):
                pass

        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.handle_error = lambda *_: None  # a client that gave up waiting
        self.url = f"http://127.0.0.1:{self.httpd.server_port}"


@pytest.fixture
def server():
    served = Server()
    thread = threading.Thread(target=served.httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.httpd.shutdown()
    thread.join()
    served.httpd.server_close()


def small(server: Server) -> Path:
    return obtain("small", f"{server.url}/small.csv", SMALL)


def test_a_download_is_kept_and_not_repeated(server):
    server.files["/small.csv"] = CONTENT
    assert small(server) == small(server) == cache_folder() / "small.csv"
    assert read_verified(small(server), SMALL) == CONTENT
    assert server.requests == ["/small.csv"]


def test_a_download_shows_its_progress(server, monkeypatch, capsys):
    server.files["/small.csv"] = CONTENT
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    small(server)
    assert "Downloading small" in capsys.readouterr().err


def _cut(server: Server) -> None:
    server.cut = True


def _alter(server: Server) -> None:
    server.files["/small.csv"] = CONTENT.replace(b"1", b"7")


def _remove(server: Server) -> None:
    server.files.clear()


def _stall(server: Server) -> None:
    server.delay = 0.5


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (_cut, "100,002"),
        (_alter, "sha256"),
        (_remove, "404"),
        (_stall, "timed out"),
    ],
)
def test_a_failed_download_leaves_nothing_behind(server, monkeypatch, spoil, problem):
    monkeypatch.setattr(datasets, "TIMEOUT", 0.2)
    server.files["/small.csv"] = CONTENT
    spoil(server)
    with pytest.raises(InputError, match=rf"small is not on this machine, .*small\.csv failed: .*{problem}.*path=FILE"):
        small(server)
    assert list(cache_folder().iterdir()) == []


def test_without_a_network_the_error_says_how_to_provide_the_file(server):
    with pytest.raises(InputError, match=r"refused.*COUNTERPATH_DATA"):
        obtain("small", "http://127.0.0.1:9/small.csv", SMALL)
