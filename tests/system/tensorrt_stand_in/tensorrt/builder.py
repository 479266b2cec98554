"""The stand-in's builder: the documented calls that make a plan of an ONNX graph of additions."""

from __future__ import annotations

import enum
import json

NetworkDefinitionCreationFlag = enum.IntEnum(
    "NetworkDefinitionCreationFlag", {"EXPLICIT_BATCH": 0, "STRONGLY_TYPED": 1}
)
VERSION = (10, 7, 0, 23)
TYPES = {1: "FLOAT", 7: "INT64", 10: "HALF"}  # of ONNX


class Builder:
    def __init__(self, logger):
        assert logger._made
        self._logger = logger

    def create_network(self, flags=0):
        assert flags == 1 << NetworkDefinitionCreationFlag.STRONGLY_TYPED
        return Network()

    def create_builder_config(self):
        return Config()

    def create_optimization_profile(self):
        return Profile()

    def build_serialized_network(self, network, config):
        """A plan, None with an error in the log."""
        (profile,) = config.profiles
        for each in network.inputs:
            least, best, most = profile.shapes[each["name"]]
            if any(
                dim not in (-1, low) or (dim != -1 and low != high)
                for dim, low, high in zip(each["shape"], least, most, strict=True)
            ):
                self._logger.log(type(self._logger).Severity.ERROR, f"the profile of {each['name']} does not fit")
                return None
            each["profiles"] = [(least, best, most)]
        said = {"inputs": network.inputs, "outputs": network.outputs, "profiles": 1}
        return b"ftrt" + bytes(20) + bytes(VERSION) + json.dumps(said).encode()


class Network:
    num_inputs = property(lambda self: len(self.inputs))

    def __init__(self):
        self.inputs, self.outputs = [], []

    def get_input(self, index):
        return Input(self.inputs[index]["name"])


class Input:
    def __init__(self, name):
        self.name = name


class Config:
    def __init__(self):
        self.profiles = []

    def add_optimization_profile(self, profile):
        self.profiles.append(profile)
        return len(self.profiles) - 1


class Profile:
    def __init__(self):
        self.shapes = {}

    def set_shape(self, name, min, opt, max):  # noqa: A002 - TensorRT's names
        self.shapes[name] = (min, opt, max)


class OnnxParser:
    num_errors = property(lambda self: len(self._errors))

    def __init__(self, network, logger):
        self._network, self._errors = network, []

    def parse_from_file(self, path):
        import onnx

        graph = onnx.load(path).graph
        made = {each.name: each.name for each in graph.input}
        for node in graph.node:
            if node.op_type != "Add":
                self._errors.append(f"In node {node.name}: No importer registered for op: {node.op_type}")
                return False
            made[node.output[0]] = " + ".join(f"({made[each]})" for each in node.input)
        self._network.inputs = [_tensor(each) for each in graph.input]
        self._network.outputs = [{**_tensor(each), "profiles": [], "make": made[each.name]} for each in graph.output]
        return True

    def get_error(self, index):
        return self._errors[index]


def _tensor(value):
    kind = value.type.tensor_type
    shape = [dim.dim_value or -1 for dim in kind.shape.dim]
    return {"name": value.name, "shape": shape, "dtype": TYPES[kind.elem_type]}
