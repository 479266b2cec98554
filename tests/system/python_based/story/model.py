"""A Python-based backend with the imports and calls of one that serves language models, around a small engine."""

import asyncio
import gc
import json
import os
import queue
import threading
import traceback

import numpy as np
import triton_python_backend_utils as pb_utils
from utils.counting import WordCounts
from wordengine import EngineArgs, started

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    @classmethod
    def auto_complete_config(cls, auto_complete_model_config):
        config = auto_complete_model_config.as_dict()
        inputs = [
            {"name": "text_input", "data_type": "TYPE_STRING", "dims": [1]},
            {"name": "stream", "data_type": "TYPE_BOOL", "dims": [1], "optional": True},
            {"name": "sampling_parameters", "data_type": "TYPE_STRING", "dims": [1], "optional": True},
        ]
        outputs = [
            {"name": "text_output", "data_type": "TYPE_STRING", "dims": [-1]},
            {"name": "said", "data_type": "TYPE_UINT32", "dims": [-1]},
        ]
        known = {tensor["name"] for tensor in (*config["input"], *config["output"])}
        auto_complete_model_config.set_model_transaction_policy({"decoupled": True})
        auto_complete_model_config.set_max_batch_size(0)
        for tensor in inputs:
            if tensor["name"] not in known:
                auto_complete_model_config.add_input(tensor)
        for tensor in outputs:
            if tensor["name"] not in known:
                auto_complete_model_config.add_output(tensor)
        return auto_complete_model_config

    def initialize(self, args):
        self.args, self.logger = args, pb_utils.Logger
        self.model_config = json.loads(args["model_config"])
        output = pb_utils.get_output_config_by_name(self.model_config, "text_output")
        self.dtype = pb_utils.triton_string_to_numpy(output["data_type"])
        assert pb_utils.using_decoupled_model_transaction_policy(self.model_config)
        path = os.path.join(pb_utils.get_model_dir(), "model.json")
        assert os.path.isfile(path), f"'model.json' must be provided in '{pb_utils.get_model_dir()}'"
        with open(path) as file:
            self.engine_args = EngineArgs(**json.load(file))
        if args["model_instance_kind"] == "GPU" and int(args["model_instance_device_id"]) >= 0:
            os.environ["CUDA_VISIBLE_DEVICES"] = args["model_instance_device_id"]
        self.counts = []
        if "REPORT" in self.model_config["parameters"]:
            labels = {"model": args["model_name"], "version": args["model_version"]}
            self.counts.append(WordCounts(labels))
        self._start_engine()
        self.responses = queue.Queue()
        self.response_thread = threading.Thread(target=self._respond)
        self.response_thread.start()

    def _start_engine(self):
        self.engine, self.engine_told = None, threading.Condition()
        self.over, self.ongoing = asyncio.Event(), 0
        self.engine_thread = threading.Thread(target=asyncio.run, args=(self._run_engine(),))
        self.engine_thread.start()
        with self.engine_told:
            while self.engine is None:
                self.engine_told.wait()
        if isinstance(self.engine, Exception):
            self.engine_thread.join()
            raise self.engine
        self.tasks = asyncio.run_coroutine_threadsafe(self.engine.tasks(), self.loop).result()

    async def _run_engine(self):
        try:
            async with started(self.engine_args, self.counts) as engine:
                self.loop = asyncio.get_running_loop()
                self._tell(engine)
                await self.over.wait()
                while self.ongoing > 0:
                    await asyncio.sleep(0.01)
                for task in asyncio.all_tasks(loop=self.loop):
                    if task is not asyncio.current_task():
                        task.cancel()
        except Exception as error:
            self._tell(error)

    def _tell(self, engine):
        with self.engine_told:
            self.engine = engine
            self.engine_told.notify_all()

    def execute(self, requests):
        if not self._is_healthy(requests):
            return None
        for request in requests:
            asyncio.run_coroutine_threadsafe(self._infer(request), self.loop)
        return None

    def _is_healthy(self, requests):
        try:
            asyncio.run_coroutine_threadsafe(self.engine.check_health(), self.loop).result()
            return True
        except Exception:
            self.logger.log_error(f"the engine is not well: {traceback.format_exc()}")
            pb_utils.unload_model(self.model_config["name"])
        for request in requests:
            error = pb_utils.TritonError(message="the engine is not well", code=pb_utils.TritonError.UNAVAILABLE)
            request.get_response_sender().send(pb_utils.InferenceResponse(error=error), flags=FINAL)
        return False

    async def _infer(self, request):
        sender = request.get_response_sender()
        state = {"sender": sender, "cancelled": False, "last": False}
        self.ongoing += 1
        here = True
        try:
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
            flag = pb_utils.get_input_tensor_by_name(request, "stream")
            stream = bool(flag.as_numpy()[0]) if flag else False
            given = pb_utils.get_input_tensor_by_name(request, "sampling_parameters")
            parameters = json.loads(given.as_numpy()[0].decode() if given else request.parameters())
            told = []
            async for each in self.engine.generate(text, request.request_id(), int(parameters.get("words", 100))):
                if state["cancelled"] if stream else sender.is_cancelled():
                    self.logger.log_info("cancelling the request")
                    await self.engine.abort(request.request_id())
                    break
                told.append(each)
                if stream:
                    state["last"] = each.finished
                    here = here and not each.finished
                    self.responses.put_nowait((state, self._response([each]), FINAL if each.finished else 0))
            if not stream:
                sender.send(self._response(told), flags=FINAL)
        except Exception as error:
            self.logger.log_error(f"error in the stream: {traceback.format_exc()}")
            text = pb_utils.Tensor("text_output", np.asarray(["N/A"], dtype=self.dtype))
            failed = pb_utils.TritonError(f"Error in the stream: {error}")
            sender.send(pb_utils.InferenceResponse(output_tensors=[text], error=failed), flags=FINAL)
            raise error
        finally:
            if here:
                self.ongoing -= 1

    def _response(self, told):
        text = np.asarray([" ".join(each.text for each in told)], dtype=self.dtype)
        said = np.asarray([each.said for each in told], dtype=np.uint32)
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor("text_output", text), pb_utils.Tensor("said", said)]
        )

    def _respond(self):
        while (item := self.responses.get()) is not None:
            state, response, flags = item
            try:
                state["sender"].send(response, flags)
                if not state["last"]:
                    state["cancelled"] = state["sender"].is_cancelled()
            finally:
                if flags == FINAL:
                    self.ongoing -= 1

    def finalize(self):
        self.logger.log_info("the story ends")
        self.loop.call_soon_threadsafe(self.over.set)
        self.engine_thread.join()
        self.responses.put(None)
        self.response_thread.join()
        for each in self.counts:
            each.finalize()
        gc.collect()
