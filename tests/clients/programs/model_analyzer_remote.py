"""What Triton's Model Analyzer does in remote mode: it waits for the server, loads, waits, reads, and unloads.

Its measurements are perf_analyzer's, which no registry has for every system; these are its own clients and monitor.
"""

from model_analyzer.monitor.remote_monitor import RemoteMonitor
from model_analyzer.record.types.gpu_used_memory import GPUUsedMemory
from model_analyzer.triton.client.client_factory import TritonClientFactory
from steps import addresses, waiting
from tritonclient.utils import InferenceServerException

RETRIES = 60
HTTP, GRPC, METRICS = addresses()


def config(client, name):
    try:
        return client.get_model_config(name, RETRIES)
    except InferenceServerException as e:
        return str(e)


def main():
    monitor = RemoteMonitor(f"http://{METRICS}/metrics", 0.1, [GPUUsedMemory])
    assert monitor.is_monitoring_connected()
    waiting()
    for client in (TritonClientFactory.create_http_client(HTTP), TritonClientFactory.create_grpc_client(GRPC)):
        client.wait_for_server_ready(RETRIES)
        assert client.wait_for_model_ready("nobody", 1, sleep_time=0) == -1
        assert client.load_model("nobody") == -1
        assert client.load_model("sum") is None
        assert client.wait_for_model_ready("sum", RETRIES) is None
        assert config(client, "sum")["max_batch_size"] == 8
        assert client.unload_model("sum") is None
    monitor.start_recording_metrics()
    monitor.stop_recording_metrics()  # reads them at least once; a machine without a GPU has no such records


main()
