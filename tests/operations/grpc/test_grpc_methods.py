"""Every RPC but inferences: messages in, messages out, over the operations of a service."""

# ruff: noqa: E501  (tables: one case, one line)
from __future__ import annotations

import asyncio

import pytest

from tests.loops import fresh_loop
from tests.native.helpers import HostDevice
from tests.operations.helpers import Served, registry
from tisfast import descriptors, limits
from tisfast.errors import NotFound, TisError
from tisfast.operations.grpc.methods import RPCS, Methods
from tisfast.operations.regions import ClientRegions
from tisfast.operations.service import EXTENSIONS, Service
from tisfast.types import Status


class Regions:
    """Remembers what it was told."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *values: self.told.append((name, *values))

    async def register_cuda(self, *values):
        self.told.append(("register_cuda", *values))

    async def unregister_cuda(self, *values):
        self.told.append(("unregister_cuda", *values))

    def system_status(self, name):
        if name:
            raise NotFound(f"Unable to find system shared memory region: '{name}'")
        return [{"name": "r", "key": "/r", "offset": 4, "byte_size": 8}]

    def cuda_status(self, _name):
        return [{"name": "c", "device_id": 1, "byte_size": 8}]


class Settings:
    """Log or trace settings that take anything."""

    def __init__(self, **values):
        self.kept, self.told = values, []

    def values(self, *_model):
        return self.kept

    def update(self, *told):
        self.told.append(told)


class Loop:
    """A loop whose timers go off when told to."""

    def __init__(self):
        self.timers = []

    def call_later(self, seconds, call):
        assert seconds == limits.HEALTH_WATCH_SECONDS
        self.timers.append(call)
        return asyncio.TimerHandle(0, call, (), self)

    def _timer_handle_cancelled(self, handle):
        self.timers.clear()

    def get_debug(self):
        return False


class Front:
    """Methods over one model, and what they are asked with."""

    def __init__(self, *served, **parts):
        self.registry = registry(*(served or (Served(config=CONFIG),)))
        self.regions, self.loop = Regions(), Loop()
        service = Service(self.registry, server_id="s", server_version="9", **{"regions": self.regions, **parts})
        self.methods = Methods(service, self.loop)

    def ask(self, rpc, data=None, **fields):
        told = message(f"{rpc}Request")(**fields).SerializeToString() if data is None else data
        answer = self.methods.unary(f"/inference.GRPCInferenceService/{rpc}").handler(told, {})
        return message(f"{rpc}Response").FromString(answer)

    def refused(self, rpc, status=Status.INVALID_ARG, **fields):
        with pytest.raises(TisError) as caught:
            self.ask(rpc, **fields)
        assert caught.value.status == status
        return caught.value.message


CONFIG = {
    "name": "m", "backend": "python", "platform": "", "max_batch_size": 0,
    "input": [{"name": "I", "data_type": "TYPE_FP32", "dims": [-1, 3]}],
    "version_policy": {"latest": {"num_versions": 1}},
    "dynamic_batching": {"priority_queue_policy": {"3": {"max_queue_size": 7}}, "max_queue_delay_microseconds": 2**62},
}  # fmt: skip


def message(name):
    return descriptors.message_class(f"inference.{name}")


def test_every_rpc_of_the_service_but_inferences_is_there():
    service = descriptors.pool().FindServiceByName("inference.GRPCInferenceService")
    names = {method.name for method in service.methods} - {"ModelInfer", "ModelStreamInfer"}
    assert {rpc.name for rpc in RPCS} == names
    methods = Front().methods
    assert all(methods.unary(f"/inference.GRPCInferenceService/{name}").category for name in names)
    assert methods.unary("/inference.GRPCInferenceService/ModelInfer") is None
    assert methods.stream("/inference.GRPCInferenceService/ServerLive") is None


def test_health_of_server_and_models():
    served = Served()
    front = Front(served)
    assert (front.ask("ServerLive").live, front.ask("ServerReady").ready) == (True, True)
    assert front.ask("ModelReady", name="m", version="01").ready
    served.runtime.set_state(False, "its worker was killed")
    assert not front.ask("ModelReady", name="m").ready
    front.registry.declare("bad", "1", "UNAVAILABLE", "unloaded")
    assert not front.ask("ModelReady", name="bad").ready
    front.registry.set_stopping()
    assert (front.ask("ServerLive").live, front.ask("ServerReady").ready) == (True, False)
    assert not front.ask("ModelReady", name="x").ready  # clients wait for what is not loaded yet
    assert not front.ask("ModelReady", name="m", version="2").ready
    assert "version should be an integral value > 0" in front.refused("ModelReady", name="m", version="one")


def test_metadata():
    front = Front()
    server = front.ask("ServerMetadata")
    assert (server.name, server.version, tuple(server.extensions)) == ("s", "9", EXTENSIONS)
    model = front.ask("ModelMetadata", name="m")
    assert (model.name, list(model.versions), model.platform) == ("m", ["1"], "python")
    assert [(t.name, t.datatype, list(t.shape)) for t in model.inputs] == [("I", "FP32", [-1, 3]), ("S", "BYTES", [1])]
    assert (
        front.refused("ModelMetadata", status=Status.NOT_FOUND, name="x")
        == "Request for unknown model: 'x' is not found"
    )


def test_the_configuration_is_a_model_config():
    config = Front().ask("ModelConfig", name="m").config
    assert (config.name, config.input[0].data_type, list(config.input[0].dims)) == ("m", 11, [-1, 3])
    assert config.dynamic_batching.priority_queue_policy[3].max_queue_size == 7
    assert config.dynamic_batching.max_queue_delay_microseconds == 2**62


def test_statistics():
    served = Served(max_batch=8), Served("n")
    served[0].infer(batch=3)
    front = Front(*served)
    (one,) = front.ask("ModelStatistics", name="m", version="1").model_stats
    assert (one.inference_count, one.execution_count, one.inference_stats.success.count) == (3, 1, 1)
    assert (one.batch_stats[0].batch_size, one.batch_stats[0].compute_infer.ns) == (
        3,
        one.inference_stats.compute_infer.ns,
    )
    assert [each.name for each in front.ask("ModelStatistics").model_stats] == ["m", "n"]
    assert front.refused("ModelStatistics", name="x") == "requested model 'x' is not available"


def test_the_repository():
    front = Front()
    front.registry.declare("bad", "1", "UNAVAILABLE", "no model.py")
    assert [(m.name, m.state, m.reason) for m in front.ask("RepositoryIndex").models] == [
        ("bad", "UNAVAILABLE", "no model.py"),
        ("m", "READY", ""),
    ]
    assert [m.name for m in front.ask("RepositoryIndex", ready=True).models] == ["m"]
    for name in ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"):
        text = front.refused(name, status=Status.UNSUPPORTED, repository_name="r")
        assert text == "'repository_name' specification is not supported"


@pytest.mark.parametrize(
    ("rpc", "parameters", "text"),
    [
        (
            "Load",
            {"config": {"int64_param": 1}},
            "invalid value type for load parameter 'config', expected string_param.",
        ),
        (
            "Load",
            {"file:1/x": {"string_param": ""}},
            "invalid value type for load parameter 'file:1/x', expected bytes_param.",
        ),
        ("Load", {"x": {"string_param": ""}}, "unrecognized load parameter 'x'."),
        (
            "Unload",
            {"unload_dependents": {"string_param": ""}},
            "invalid value type for 'unload_dependents' parameter, expected ",
        ),
        ("Unload", {"x": {"bool_param": True}}, "unrecognized unload parameter 'x'."),
    ],
)
def test_bad_parameters_of_load_and_unload(rpc, parameters, text):
    assert Front().refused(f"RepositoryModel{rpc}", model_name="m", parameters=parameters).startswith(text)


def test_shared_memory():
    front = Front()
    region = front.ask("SystemSharedMemoryStatus").regions["r"]
    assert (region.name, region.key, region.offset, region.byte_size) == ("r", "/r", 4, 8)
    assert front.ask("CudaSharedMemoryStatus").regions["c"].device_id == 1
    assert "'x'" in front.refused("SystemSharedMemoryStatus", status=Status.NOT_FOUND, name="x")
    front.ask("SystemSharedMemoryRegister", name="a", key="/a", offset=1, byte_size=2)
    front.ask("SystemSharedMemoryUnregister", name="a")

    async def both():
        for rpc, fields in (
            ("Register", {"name": "b", "raw_handle": b"h", "device_id": 1, "byte_size": 2}),
            ("Unregister", {}),
        ):
            method = front.methods.unary(f"/inference.GRPCInferenceService/CudaSharedMemory{rpc}")
            told = message(f"CudaSharedMemory{rpc}Request")(**fields).SerializeToString()
            assert await method.handler(told, {}) == b""

    with fresh_loop() as loop:
        loop.run_until_complete(both())
    assert front.regions.told == [
        ("register_system", "a", "/a", 1, 2), ("unregister_system", "a"), ("register_cuda", "b", b"h", 1, 2),
        ("unregister_cuda", ""),
    ]  # fmt: skip
    assert "shared memory" in Front(regions=None).refused("SystemSharedMemoryStatus", status=Status.UNSUPPORTED)


def test_regions_of_gpus_are_registered_and_unregistered_in_the_order_of_the_calls():
    device = HostDevice(a=b"0123456789")
    regions = ClientRegions(lambda: device, allowed=True)
    front = Front(regions=regions)

    def call(rpc, **fields):
        told = message(f"CudaSharedMemory{rpc}Request")(name="b", **fields).SerializeToString()
        return front.methods.unary(f"/inference.GRPCInferenceService/CudaSharedMemory{rpc}").handler(told, {})

    async def both():
        registering = call("Register", raw_handle=device.handle("a"), byte_size=2)
        call("Unregister")
        return await asyncio.gather(registering, return_exceptions=True)

    with fresh_loop() as loop:
        (refused,) = loop.run_until_complete(both())
    assert str(refused) == "shared memory region 'b' was unregistered while it was being registered"
    assert regions.cuda_status("") == []


def test_log_settings():
    log = Settings(log_file="", log_info=True, log_verbose_level=2)
    front = Front(log_settings=log)
    got = front.ask("LogSettings").settings
    assert (got["log_info"].bool_param, got["log_verbose_level"].uint32_param, got["log_file"].WhichOneof("parameter_choice")) == (
        True, 2, "string_param"
    )  # fmt: skip
    front.ask("LogSettings", settings={"log_info": {"bool_param": False}, "log_verbose_level": {"uint32_param": 1}})
    assert log.told == [({"log_info": False, "log_verbose_level": 1},)]
    for name, value, text in (
        ("log_info", {"uint32_param": 1}, "expect boolean for 'log_info'"),
        ("log_verbose_level", {"bool_param": True}, "expect int32 for 'log_verbose_level'"),
        ("log_format", {}, "expect string for 'log_format'"),
    ):
        assert front.refused("LogSettings", settings={name: value}) == text
    assert Front().refused("LogSettings", status=Status.UNSUPPORTED)


def test_trace_settings():
    trace = Settings(trace_level=["TIMESTAMPS", "TENSORS"], trace_rate="3")
    front = Front(trace_settings=trace)
    got = {name: list(value.value) for name, value in front.ask("TraceSetting", model_name="m").settings.items()}
    assert got == {"trace_level": ["TIMESTAMPS", "TENSORS"], "trace_rate": ["3"]}
    changes = {"trace_level": {"value": ["OFF"]}, "trace_rate": {"value": ["5"]}, "trace_count": {}}
    front.ask("TraceSetting", settings=changes, model_name="m")
    assert trace.told == [("m", {"trace_level": ["OFF"], "trace_rate": "5", "trace_count": None})]
    assert (
        front.refused("TraceSetting", settings={"trace_rate": {"value": ["1", "2"]}})
        == "expect only 1 value for 'trace_rate'"
    )


def test_what_is_no_message():
    for rpc in RPCS:
        with pytest.raises(TisError, match="Unable to parse request"):
            Front().ask(rpc.name, data=b"\xff\xff")


# ---- health and reflection


def health(data):
    return descriptors.message_class("grpc.health.v1.HealthCheckResponse").FromString(data).status


def test_the_health_service():
    front = Front()
    check = front.methods.unary("/grpc.health.v1.Health/Check").handler
    assert (health(check(b"", {})), health(check(b"\x0a\x01x", {}))) == (1, 1)
    front.registry.set_stopping()
    assert health(check(b"", {})) == 2
    with pytest.raises(TisError, match="Unable to parse request"):
        check(b"\xff", {})


def test_watchers_are_told_of_changes():
    front, sent = Front(), []
    method = front.methods.stream("/grpc.health.v1.Health/Watch")
    assert not method.closes
    call = method.open(sent.append)
    assert [health(answer) for answer in call.on_message(b"")] == [1]
    (look,) = front.loop.timers
    look()
    assert sent == []
    front.registry.set_stopping()
    look()
    look()
    assert [health(answer) for answer in sent] == [2]
    with pytest.raises(TisError):
        call.on_message(b"")
    call.on_end()
    assert front.loop.timers == []


def reflect(package, **question):
    method = Front().methods.stream(f"/{package}.ServerReflection/ServerReflectionInfo")
    call = method.open(None)
    told = descriptors.message_class(f"{package}.ServerReflectionRequest")(host="h", **question)
    (data,) = call.on_message(told.SerializeToString())
    call.on_end()
    answer = descriptors.message_class(f"{package}.ServerReflectionResponse").FromString(data)
    assert (answer.valid_host, answer.original_request, method.closes) == ("h", told, True)
    return answer


@pytest.mark.parametrize("package", ["grpc.reflection.v1", "grpc.reflection.v1alpha"])
def test_reflection(package):
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    services = [each.name for each in reflect(package, list_services="").list_services_response.service]
    assert {"inference.GRPCInferenceService", "grpc.health.v1.Health", f"{package}.ServerReflection"} <= set(services)
    symbols = (
        "inference.GRPCInferenceService",
        "inference.GRPCInferenceService.ModelInfer",
        "inference.ModelInferRequest",
    )
    for question in (
        *({"file_containing_symbol": symbol} for symbol in symbols),
        {"file_by_filename": "grpc_service.proto"},
    ):
        files = reflect(package, **question).file_descriptor_response.file_descriptor_proto
        assert [FileDescriptorProto.FromString(file).name for file in files] == [
            "grpc_service.proto",
            "model_config.proto",
        ]
    extensions = reflect(package, all_extension_numbers_of_type="inference.ModelConfig").all_extension_numbers_response
    assert (extensions.base_type_name, list(extensions.extension_number)) == ("inference.ModelConfig", [])
    for question in (
        {"file_containing_symbol": "no.Such"}, {"file_by_filename": "no.proto"}, {"all_extension_numbers_of_type": "no.Such"},
        {"file_containing_extension": {"containing_type": "no.Such", "extension_number": 1}},
        {"file_containing_symbol": "inference.GRPCInferenceService.NoSuch"},
    ):  # fmt: skip
        assert reflect(package, **question).error_response.error_code == 5
    assert reflect(package).error_response.error_code == 3
