import gzip
import hashlib
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest

from counterpath.data import datasets
from counterpath.data.datasets import (
    ADULT_SHA256,
    DATASETS,
    GMC_SHA256,
    cache_folder,
    find,
    load,
    obtain,
    read_verified,
)
from counterpath.utils.errors import InputError

CONTENT = b"a,b\n" + b"1,2\n" * 50_000
SMALL = hashlib.sha256(CONTENT).hexdigest()
# Read before a test changes the environment.
REFERENCE = Path(os.environ.get(datasets.VARIABLE) or Path(__file__).parents[3] / "shared" / "data")


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


# Adult


def test_adult_is_the_published_table_byte_for_byte():
    text = whole(load("adult")).to_csv(index=False, lineterminator="\n")
    assert hashlib.sha256(text.encode()).hexdigest() == ADULT_SHA256


def test_adult_equals_the_reference_copy():
    file = reference("adult")
    assert whole(load("adult")).to_csv(index=False, lineterminator="\n").encode() == gzip.decompress(file.read_bytes())
    pd.testing.assert_frame_equal(load("adult", file).test, load("adult").test)


def test_adult_is_split_as_in_the_paper():
    data = load("adult")
    assert (len(data.train), len(data.test)) == (36_624, 12_208)
    assert (data.test[data.target] == 0).sum() == 9_268
    assert data.name == "adult"
    assert data.schema.immutable == ("age", "race", "sex")
    assert [*data.schema.names, data.target] == list(data.train.columns)


def test_one_stands_for_the_category_that_the_paper_names():
    data = load("adult")
    ones = {feature.categories[1] for feature in data.schema if feature.kind == "binary"}
    assert ones == {"Private", "Non-Married", "Other", "Non-Husband", "White", "Male", "US"}


def test_the_encoder_learns_from_the_training_rows_or_from_all():
    data = load("adult")
    features = data.test[list(data.schema.names)]
    encoder = data.encoder()
    pd.testing.assert_frame_equal(encoder.decode(encoder.encode(features), features.index), features, check_exact=True)
    lowest = data.schema.index("fnlwgt")
    assert encoder.low[lowest] == data.train["fnlwgt"].min()
    assert data.encoder(rows="all").low[lowest] == whole(data)["fnlwgt"].min()


# Give Me Some Credit


def test_gmc_is_split_as_in_the_paper():
    data = load("gmc", path=reference("gmc").parent)
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


def test_gmc_is_downloaded_once_and_then_read_from_the_cache(monkeypatch, server):
    server.files["/gmc.csv"] = gzip.decompress(reference("gmc").read_bytes())
    monkeypatch.setattr(datasets, "GMC_URL", f"{server.url}/gmc.csv")
    first = load("gmc")
    assert hashlib.sha256((cache_folder() / "gmc.csv").read_bytes()).hexdigest() == GMC_SHA256
    pd.testing.assert_frame_equal(load("gmc").test, first.test)
    assert server.requests == ["/gmc.csv"]


def test_gmc_without_a_copy_and_without_a_server_says_how_to_provide_it(monkeypatch, server):
    monkeypatch.setattr(datasets, "GMC_URL", f"{server.url}/gmc.csv")
    with pytest.raises(InputError, match=r"404.*path=FILE.*COUNTERPATH_DATA.*or the file .*counterpath/gmc\.csv"):
        load("gmc")


# Finding files


def test_an_unknown_data_set_is_answered_with_the_known_ones():
    with pytest.raises(InputError, match=r"unknown data set 'adlut' \(did you mean 'adult'\?\); .*adult, gmc"):
        load("adlut")


@pytest.mark.parametrize("name", DATASETS)
def test_a_path_that_leads_nowhere_is_named(name, tmp_path):
    with pytest.raises(InputError, match=f"path is {tmp_path}; expected the file {name}.csv or {name}.csv.gz"):
        load(name, tmp_path)
    with pytest.raises(InputError, match=f"path is {tmp_path}/none.csv"):
        load(name, str(tmp_path / "none.csv"))


@pytest.mark.parametrize("name", DATASETS)
def test_a_file_with_other_content_is_refused(name, tmp_path):
    file = tmp_path / f"{name}.csv"
    file.write_bytes(CONTENT)
    with pytest.raises(InputError, match=f"{file} is cut short or altered: its 200,004 bytes.*expected.*delete it"):
        load(name, file)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize("folder", [True, False])
def test_the_environment_variable_names_a_file_or_a_folder(monkeypatch, tmp_path, suffix, folder):
    file = tmp_path / f"small{suffix}"
    file.write_bytes(gzip.compress(CONTENT) if suffix == ".csv.gz" else CONTENT)
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
def test_a_damaged_archive_is_named(tmp_path, damage):
    file = tmp_path / "small.csv.gz"
    file.write_bytes(damage(gzip.compress(CONTENT)))
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
