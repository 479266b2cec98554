"""Clients of models."""

from tisfast.pytriton.client.client import DecoupledModelClient, ModelClient
from tisfast.pytriton.client.futures import FuturesModelClient

__all__ = ["DecoupledModelClient", "FuturesModelClient", "ModelClient"]
