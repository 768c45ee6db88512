"""Where batches run on a Dask cluster."""

import queue
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

from deeplinear._core.build import OtherBuild, run_as, this_build
from deeplinear._core.pool import Answer, Argument, WorkerLost
from deeplinear._core.refusal import Refusal

_ANSWER_SECONDS = 5.0
_GRACE_SECONDS = 1.0
_COUNT_SECONDS = 5.0


class DaskCluster:
    """Runs batches on a Dask cluster, given by the address of its scheduler or a ``distributed.Client``."""

    def __init__(self, scheduler: Any) -> None:
        try:
            import distributed
        except ImportError:
            raise ImportError("a scheduler needs Dask: pip install 'deeplinear[sweep]'") from None
        self._distributed: Any = distributed
        self._owned = isinstance(scheduler, str)
        self._client = self._connect(scheduler) if isinstance(scheduler, str) else scheduler
        if not isinstance(self._client, distributed.Client) or self._client.asynchronous:
            raise Refusal("scheduler", scheduler, "an address or a synchronous distributed.Client")
        self._counted = (0, -_COUNT_SECONDS)
        self._futures: set[Any] = set()

    @property
    def window(self) -> int:
        """Two batches for each thread of the cluster, and some more so that a cluster that can grow sees a need."""
        threads, when = self._counted
        if time.monotonic() - when > _COUNT_SECONDS:
            threads = sum(self._client.nthreads().values())
            self._counted = threads, time.monotonic()
        return 2 * threads + 8

    def submit(self, function: Callable[[Argument], Answer], argument: Argument) -> Any:
        """Start a batch on the cluster."""
        key = f"deeplinear-{uuid.uuid4().hex}"
        future = self._client.submit(run_as, this_build(), function, argument, key=key, pure=False)
        self._futures.add(future)
        return future

    def result(self, future: Any) -> Any:
        """Fetch a result."""
        self._futures.discard(future)
        try:
            result = future.result()
        except (ImportError, AttributeError, RuntimeError) as error:  # what runs there lacks what was asked of it
            text = f"a worker of the cluster cannot do this ({error}): give it deeplinear {this_build()} too"
            raise OtherBuild("scheduler", self._client, this_build(), text=text) from None
        except self._distributed.KilledWorker as error:
            raise WorkerLost(str(error)) from None
        except CancelledError:
            raise self._lost() from None
        return result

    def check(self) -> None:
        """Raise if the scheduler is gone."""
        if self._client.status not in ("running", "connecting"):
            raise self._lost()

    def close(self) -> None:
        """Cancel what is under way, and leave the cluster to its owner."""
        if self._client.status == "running" and self._futures:
            self._client.cancel(list(self._futures))
        if self._owned:
            self._client.close(timeout=2)

    def _connect(self, address: str) -> Any:
        """Connect, in another thread, since Dask itself waits for ever on one who accepts and then says nothing."""
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def connect() -> None:
            try:
                answers.put(self._distributed.Client(address, timeout=_ANSWER_SECONDS, set_as_default=False))
            except Exception as error:
                answers.put(error)

        threading.Thread(target=connect, daemon=True).start()
        try:
            answer = answers.get(timeout=_ANSWER_SECONDS + _GRACE_SECONDS)
        except queue.Empty:
            answer = TimeoutError()
        if isinstance(answer, ValueError):
            raise Refusal("scheduler", address, "an address such as 'tcp://127.0.0.1:8786'") from answer
        if isinstance(answer, OSError):  # among them what says that time is up
            raise ConnectionError(f"scheduler {address} does not answer within {_ANSWER_SECONDS:g} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _lost(self) -> ConnectionError:
        return ConnectionError("the connection to the scheduler was lost; run the sweep again to resume it")
