"""Configurations beside what the real Triton (2.51) says of them.

golden/accepted.json and golden/refused.json hold, for each model name, the config.pbtxt and Triton's answer: the body
of GET /v2/models/NAME/config, or the error text.  They were taken from the real server, started with
--model-control-mode=explicit on a repository with one folder per name (the config.pbtxt and a 1/model.py with an empty
`initialize`), by POST /v2/repository/models/NAME/load, GET .../config, and for files that Triton does not even poll
from the "Poll failed for model directory" line of its log.  The machine had no GPU.
"""

import json
from pathlib import Path

import pytest

from tisfast.config import defaults
from tisfast.config.error_report import ConfigErrors
from tisfast.config.model_config import ConfigDraft, finish, parse
from tisfast.config.unsupported import STAGE
from tisfast.repo.completion import fill_from_files

GOLDEN = Path(__file__).parent / "golden"
ACCEPTED = json.loads((GOLDEN / "accepted.json").read_text())
REFUSED = json.loads((GOLDEN / "refused.json").read_text())

NOT_SERVED = {
    "passive", "hostpol", "secdev", "full",
}  # fmt: skip
STRICTER = {  # Triton 2.51 takes these; the reason why we do not
    "countneg": "has count -1",  # it reads as 1
    "dupgrp": "given twice",  # invalid since
    "dupin": "declared more than once",  # invalid since
    "dupout": "declared more than once",
    "platback": "unexpected 'platform' and 'backend' pair",  # invalid since
    "pl_key0": "no effect",  # what is not honoured is refused
    "pl_key1": "no effect",
    "def_only": "'default_priority_level' has no effect without 'priority_levels'",
    "bi_dup": "can only be specified once",  # invalid since
    "dupkey": "twice",  # the first value would be dropped silently
    "sq_statedup": "'si' is the name of another tensor",  # the second state would be dropped silently
    "sq_grow": "you must also enable 'use_single_buffer'",  # noticed with the first request only
    "sq_statenotype": "must specify 'data_type'",  # nobody could give the model a tensor
}


@pytest.fixture
def version(tmp_path):
    (tmp_path / "model.py").write_text("")
    return tmp_path


def drafted(name, pbtxt, version) -> ConfigDraft:
    draft = parse(pbtxt, "config.pbtxt")
    fill_from_files(draft, Path(name), version)
    return draft


@pytest.mark.parametrize("name", sorted(set(ACCEPTED) - {"dupkey", "countneg"}))
def test_normalised_config_prints_as_tritons(name, version):
    draft = drafted(name, ACCEPTED[name]["pbtxt"], version)
    defaults.normalise(draft.message, name, ())
    theirs = ACCEPTED[name]["config"]
    if name == "prio":  # Triton's order of map keys is that of its hash table
        assert defaults.to_dict(draft.message) == json.loads(theirs)
        return
    if name == "ens":  # the server adds this for every ensemble after it looked at the composing models
        theirs = theirs.replace(',"model_transaction_policy":{"decoupled":false}', "")
        theirs = theirs.replace('"model_namespace":""}]}', '"model_namespace":""}],"max_inflight_requests":0}')  # newer
    for text in ("1", "2", "4"):  # 64-bit integers are numbers; 2.51 forgets some fields
        theirs = theirs.replace(f'"dims":["{text}"]', f'"dims":[{text}]')
        theirs = theirs.replace(f'"dim":["{text}"]', f'"dim":[{text}]')
        theirs = theirs.replace(f'"device_id":"{text}"', f'"device_id":{text}')
    assert json.dumps(defaults.to_dict(draft.message), separators=(",", ":"), ensure_ascii=False) == unescaped(theirs)


def unescaped(text):
    """Triton escapes some control characters otherwise than Python does."""
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("name", sorted(set(ACCEPTED) - NOT_SERVED - set(STRICTER)))
def test_what_triton_serves_is_accepted(name, version):
    finish(drafted(name, ACCEPTED[name]["pbtxt"], version), name)


@pytest.mark.parametrize("name", sorted(NOT_SERVED))
def test_what_is_not_served_is_refused_by_name(name, version):
    with pytest.raises(ConfigErrors, match=STAGE) as caught:
        finish(drafted(name, ACCEPTED[name]["pbtxt"], version), name)
    assert all(error.line == 1 or name == "full" for error in caught.value.errors)


@pytest.mark.parametrize("name", sorted(STRICTER))
def test_what_is_stricter_than_the_old_triton(name, version):
    with pytest.raises(ConfigErrors, match=STRICTER[name]):
        finish(drafted(name, ACCEPTED[name]["pbtxt"], version), name)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_triton_refuses_is_refused_in_its_words(name, version):
    with pytest.raises(ConfigErrors) as caught:
        finish(drafted(name, REFUSED[name]["pbtxt"], version), name)
    theirs = REFUSED[name]["error"]
    if theirs != "failed to read text proto":  # of which we say more, see test_pbtxt.py
        assert any(error.message.startswith(theirs) for error in caught.value.errors)
    assert all(error.line > 0 and error.column > 0 for error in caught.value.errors)


def test_auto_kind_is_gpu_where_there_are_gpus():
    config = finish(parse('backend: "python" instance_group { count: 2 }', "f"), "m", gpus=(0, 1))
    assert config.as_dict["instance_group"][0]["kind"] == "KIND_GPU"
    assert config.as_dict["instance_group"][0]["gpus"] == [0, 1]


@pytest.mark.parametrize(
    ("written", "printed"), [("0.1", "0.1"), ("0.3333333333", "0.33333334"), ("1", "1"), ("1e10", "10000000000")]
)
def test_single_floats_print_shortest(written, printed):
    draft = parse(f"sequence_batching {{ direct {{ minimum_slot_utilization: {written} }} }}", "f")
    direct = defaults.to_dict(draft.message)["sequence_batching"]["direct"]
    assert json.dumps(direct["minimum_slot_utilization"]) == printed
