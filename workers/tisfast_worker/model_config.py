"""pb_utils.ModelConfig, what `auto_complete_config` builds upon; texts are Triton's."""

import json


class ModelConfig:
    """A model configuration that may be completed, and nothing in it changed."""

    def __init__(self, model_config):
        """From JSON text."""
        self._config = json.loads(model_config)

    def as_dict(self):
        """The configuration as a dict, for reading."""
        return self._config

    def as_json(self):
        """The configuration as JSON text."""
        return json.dumps(self._config)

    def set_max_batch_size(self, max_batch_size):
        """Raise max_batch_size to this; ValueError when the file says more."""
        configured = self._config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in auto-complete-config function for model "
                f"'{self._name}' "
                f"specified max_batch_size {max_batch_size}"
            )
        self._config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        """Batch dynamically; ValueError when the file names another scheduler."""
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{scheduler}', but auto-complete-config function "
                    f"for model '{self._name}' "
                    "tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._config.setdefault("dynamic_batching", {})

    def add_input(self, input):  # noqa: A002 - Triton's argument name
        """Add an input: name, data_type, dims and perhaps optional.  ValueError when the file says otherwise."""
        self._check(input, "input", ("name", "data_type", "dims", "optional"))
        self._add(input, "input")

    def add_output(self, output):
        """Add an output: name, data_type and dims.  ValueError when the file says otherwise."""
        self._check(output, "output", ("name", "data_type", "dims"))
        self._add(output, "output")

    def set_model_transaction_policy(self, transaction_policy_dict):
        """Set {"decoupled": bool}; ValueError for another property or when the file says otherwise."""
        for key in transaction_policy_dict:
            if key != "decoupled":
                raise ValueError(
                    f"model transaction property in auto-complete-config function for model '{self._name}' contains "
                    "property other "
                    "than 'decoupled'."
                )
        policy = self._config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        wanted = transaction_policy_dict["decoupled"]
        if policy.get("decoupled", wanted) != wanted:
            raise ValueError(
                "trying to change decoupled property in auto-complete-config for model '{}', which is already set to "
                "'{}'.".format(self._name, policy["decoupled"])
            )
        policy["decoupled"] = wanted

    @property
    def _name(self):
        return self._config.get("name", "")

    def _check(self, tensor, kind, allowed):
        place = f"in auto-complete-config function for model '{self._name}'"
        subject = "{} '{}' {}".format(kind, tensor.get("name", ""), place)
        if any(key not in allowed for key in tensor):
            quoted = [f"'{key}'" for key in allowed]
            known = ", ".join(quoted[:-1]) + " and " + quoted[-1]
            raise ValueError(f"{subject} contains property other than {known}.")
        if "name" not in tensor:
            raise ValueError(f"{kind} {place} is missing 'name' property.")
        for key in ("data_type", "dims"):
            if key not in tensor:
                raise ValueError(f"{subject} is missing '{key}' property.")

    def _add(self, tensor, kind):
        for known in self._config.setdefault(kind, []):
            if known["name"] == tensor["name"]:
                self._merge(known, tensor, kind)
                return
        self._config[kind].append(tensor)

    def _merge(self, known, tensor, kind):
        data_type = known.get("data_type", "TYPE_INVALID")
        if data_type not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                "unable to load model '{}', configuration expects datatype {} for {} '{}', model provides {}".format(
                    self._name, data_type, kind, tensor["name"], tensor["data_type"]
                )
            )
        for key in ("dims", "optional"):
            # The file's empty dims are unset; its `optional` counts whenever it is there.
            configured = known.get(key) if key == "optional" else known.get(key) or None
            if configured is not None and key in tensor and configured != tensor[key]:
                raise ValueError(
                    "model '{}', tensor '{}': the model expects {} {} but the model configuration specifies {} "
                    "{}".format(self._name, tensor["name"], key, tensor[key], key, configured)
                )
        known.update(tensor)
