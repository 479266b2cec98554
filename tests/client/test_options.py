"""Options that cannot be: one sentence, the same for both protocols and both clients, before anything is sent."""

from __future__ import annotations

import asyncio
import copy
import pickle
import re
import traceback

import numpy as np
import pytest

from tisfast.client import AsyncClient, BadRequest, Client, Retries, Tls

A = np.arange(4, dtype=np.float32)
OF_A_CLIENT = [
    ({"timeout": "x"}, "timeout='x' must be seconds, more than 0 and at most 604800"),
    ({"timeout": float("nan")}, "timeout=nan must be seconds"),
    ({"timeout": float("inf")}, "timeout=inf must be seconds"),
    ({"timeout": True}, "timeout=True must be seconds"),
    ({"timeout": 10**400}, "timeout=1000"),
    ({"timeout": -1}, "timeout=-1 must be seconds"),
    ({"retries": "x"}, "retries='x' must be Retries or an integer from 0 to 1000"),
    ({"retries": -1}, "retries=-1 must be Retries or an integer from 0"),
    ({"retries": True}, "retries=True must be Retries or an integer"),
    ({"retries": None}, "retries=None must be Retries or an integer"),
    ({"connections": True}, "connections=True must be an integer from 1 to 4096"),
    ({"connections": 0}, "connections=0 must be an integer from 1 to 4096"),
    ({"concurrency": 1.5}, "concurrency=1.5 must be an integer from 1 to 4096"),
    ({"headers": "x"}, "headers='x' must be a mapping of names to values, all of them texts"),
    ({"headers": {"a": 1}}, "headers= must be a mapping of texts to texts; 'a' has a value of int"),
    ({"headers": {"a b": "c"}}, "headers= cannot be sent"),
    ({"headers": None}, "headers=None must be a mapping"),
    ({"token": 7}, "token= must be a text, not int"),
    ({"token": "a\nb"}, "token= cannot be sent"),
    ({"compression": "zip"}, "compression='zip' must be one of '', 'gzip', 'deflate'"),
    ({"shared_memory": 1}, "shared_memory=1 must be True, False or 'auto'"),
    ({"shared_memory": "yes"}, "shared_memory='yes' must be True, False or 'auto'"),
    ({"tls": True}, "tls=True must be a Tls"),
    ({"protocol": "ftp"}, "'protocol' is no option of a client"),
]
OF_A_CALL = [
    ({"timeout": "x"}, "timeout='x' must be seconds"),
    ({"timeout": float("nan")}, "timeout=nan must be seconds"),
    ({"timeout": True}, "timeout=True must be seconds"),
    ({"parameters": "k"}, "parameters='k' must be a mapping of names to values"),
    ({"parameters": {1: 2}}, "name of a request parameter=1 must be a text"),
    (
        {"parameters": {"k": [1]}},
        r"request parameter 'k' is \[1\]; it must be a bool, a str, a float, or an int of 64 bits",
    ),
    ({"parameters": {"k": 1 << 64}}, "request parameter 'k' is 18446744073709551616; it must be"),
    ({"id": 7}, "id=7 must be a text"),
    ({"outputs": 7}, "outputs=7 must be names of outputs"),
    ({"classes": -1}, "classes=-1 must be a mapping of outputs, or an integer from 0 to 2147483647"),
    ({"classes": "x"}, "classes='x' must be a mapping of outputs, or an integer"),
    ({"classes": {"OUTPUT0": -1}}, "classes of output 'OUTPUT0'=-1 must be an integer from 0"),
    ({"priority": "x"}, "priority='x' must be an integer from 0 to 18446744073709551615"),
    ({"priority": -1}, "priority=-1 must be an integer from 0"),
    ({"headers": ["x"]}, r"headers=\['x'\] must be a mapping"),
    ({"headers": {"a": "b\nc"}}, "headers= cannot be sent"),
    ({"retry": "no"}, "retry='no' must be True or False"),
]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("make", [Client, AsyncClient])
@pytest.mark.parametrize(("options", "said"), OF_A_CLIENT)
def test_a_client_says_which_option_is_wrong(protocol, make, options, said):
    with pytest.raises(BadRequest, match=said):
        make(f"{protocol}://127.0.0.1:1", **options)


@pytest.mark.parametrize(
    "options",
    [{"token": "s3cret\n"}, {"token": b"s3cret"}, {"headers": {"a": "s3cret\n"}}, {"headers": {"a": b"s3cret"}}],
)
def test_no_error_shows_a_secret(options):
    with pytest.raises(BadRequest) as caught:
        Client("127.0.0.1:1", **options)
    assert "s3cret" not in "".join(traceback.format_exception_only(caught.value))
    assert caught.value.__cause__ is None and (caught.value.__context__ is None or caught.value.__suppress_context__)


@pytest.mark.parametrize("url", [None, "", 7, b"localhost:8000"])
def test_an_address_that_is_none(url):
    with pytest.raises(BadRequest, match=f"{re.escape(repr(url))} is no address of a server: it must be"):
        Client(url)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"count": -1}, r"Retries\(count=-1\) must be an integer from 0 to 1000"),
        ({"count": "2"}, r"Retries\(count='2'\) must be an integer"),
        ({"seconds": "x"}, r"Retries\(seconds='x'\) must be seconds, from 0 to"),
        ({"pause_seconds": float("nan")}, r"Retries\(pause_seconds=nan\) must be seconds"),
    ],
)
def test_retries_that_are_none(fields, said):
    with pytest.raises(BadRequest, match=said):
        Retries(**fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"server_name": ".x"}, r"Tls\(server_name='.x'\) is no name of a host"),
        ({"server_name": 7}, r"Tls\(server_name=7\) must be a text"),
        ({"ca": 7}, r"Tls\(ca=7\) must be the path of a file, or None"),
        ({"key": "key.pem"}, r"Tls\(key='key.pem'\) has no cert="),
        ({"verify": "no"}, r"Tls\(verify='no'\) must be True or False"),
    ],
)
@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_tls_that_is_none(make, fields, said):
    with pytest.raises(BadRequest, match=said):
        make("https://127.0.0.1:1", tls=Tls(**fields))


@pytest.mark.parametrize(("options", "said"), OF_A_CALL)
def test_a_call_says_which_option_is_wrong(client, options, said):
    model = client.model("add_sub")
    for ask in (lambda: model(A, A, **options), lambda: model.infer([A, A], **options)):
        with pytest.raises(BadRequest, match=said):
            ask()
    with pytest.raises(BadRequest, match=said):
        model.submit(A, A, **options).result(60)


@pytest.mark.parametrize(("options", "said"), OF_A_CALL)
def test_a_call_that_is_awaited_says_which_option_is_wrong(url, options, said):
    async def main():
        async with AsyncClient(url) as client:
            with pytest.raises(BadRequest, match=said):
                await client.model("add_sub")(A, A, **options)

    asyncio.run(main())


def test_scalars_of_numpy_are_numbers(client):
    model = client.model("facts")
    options = {"priority": np.int64(0), "parameters": {"n": np.int32(7), "x": np.float64(0.5)}}
    assert model.infer([A], **options)["FACTS"].size == 1


@pytest.mark.parametrize("id", [1.5, -1, True, None, 1 << 64])
def test_an_id_of_a_sequence_that_is_none(client, id):
    with pytest.raises(
        BadRequest, match="id of a sequence=.* must be a text or an integer from 0 to 18446744073709551615"
    ):
        client.model("counting").sequence(id)


@pytest.mark.parametrize("version", [1.0, -1, 0, None, True])
def test_a_version_that_is_none(client, version):
    with pytest.raises(BadRequest, match="version of model 'add_sub'=.* must be an integer from 1 to"):
        client.model("add_sub", version)


@pytest.mark.parametrize("version", ["x", "1.5", "-1"])
def test_a_version_that_the_server_has_no_place_for_is_the_same_error_over_both_protocols(client, version):
    model = client.model("add_sub", version)
    for ask in (lambda: model(A, A), model.metadata, model.config, model.statistics):
        with pytest.raises(
            BadRequest, match=f"version='{version}' of model 'add_sub' is none that .* whole numbers from 1"
        ):
            ask()
    assert not model.ready()


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_name_of_a_model_that_is_none(client, name):
    with pytest.raises(BadRequest, match="is no name of a model"):
        client.model(name)


@pytest.mark.parametrize("size", [-1, 1.5, "x"])
def test_a_size_of_batches_that_is_none(client, size):
    with pytest.raises(BadRequest, match="size=.* must be an integer from 0 to"):
        client.model("batched").batches([[1, 2]], size=size)


def test_inputs_by_name_in_a_dict_are_shown_how(client):
    model = client.model("batched")
    for ask in (model, model.batches, model.sample):
        with pytest.raises(
            BadRequest, match=r"input 'A' .* given a dict; .* model\(A=...\), model\(\*\*inputs\) or model.infer"
        ):
            ask({"A": [[1, 2]]})
    with pytest.raises(BadRequest, match="the inputs of model 'batched' are ndarray; infer takes a mapping"):
        model.infer(A)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_what_has_connections_cannot_be_copied_and_says_what_to_do(client, copied):
    for each in (client, client.model("add_sub")):
        with pytest.raises(TypeError, match="a client of .* has connections, which cannot be copied or pickled"):
            copied(each)


def test_a_masked_array_is_refused_as_no_mask_is_sent(client):
    masked = np.ma.masked_array(A, [False, True, False, False])
    with pytest.raises(BadRequest, match=r"was given a masked array, .* no mask: .*\.filled\(value\)"):
        client.model("add_sub")(masked, A)


def test_an_array_of_a_class_of_its_own_is_sent_as_it_is(client):
    class Named(np.ndarray):
        """With a name."""

    assert np.array_equal(client.model("add_sub")(A.view(Named), A)[0], A + A)
