from typing import Any, final

@final
class Statistics:
    inference_count: int
    execution_count: int
    last_inference_ms: int
    pending: int
    rejected: int
    canceled: int
    backend_failed: int
    other_failed: int
    batch_stats: dict[int, Any]
    def inference_stats(self) -> dict[str, dict[str, int]]: ...
    responses: list[Any]
    def response_stats(self) -> dict[str, dict[str, dict[str, int]]]: ...
    def batches(self) -> list[dict[str, Any]]: ...
