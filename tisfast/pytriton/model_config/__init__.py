"""How a model is described to `Triton.bind`."""

from tisfast.pytriton.model_config.common import DeviceKind, DynamicBatcher, QueuePolicy, TimeoutAction
from tisfast.pytriton.model_config.model_config import ModelConfig
from tisfast.pytriton.model_config.tensor import Tensor

__all__ = ["DeviceKind", "DynamicBatcher", "ModelConfig", "QueuePolicy", "Tensor", "TimeoutAction"]
