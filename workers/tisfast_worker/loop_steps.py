"""Which steps the loop of a model holds (loop.py): by its backend, and by what its configuration says."""

from tisfast_worker.answer_publisher import AnswerPublisher
from tisfast_worker.batch_arrays import BatchCall
from tisfast_worker.batch_reader import BatchReader, SequenceReader, StreamReader
from tisfast_worker.batch_source import BatchSource
from tisfast_worker.device_arena import DeviceArena
from tisfast_worker.loop import Loop
from tisfast_worker.output_space import OutputSpace
from tisfast_worker.pinned_memory import PinnedMemory, PinningReader
from tisfast_worker.runner import Runner, SequenceRunner
from tisfast_worker.sequences import Sequences
from tisfast_worker.stream_loop import StreamLoop
from tisfast_worker.stream_writer import StreamWriter


def make_loop(model, backend, plane, trace):
    """The Loop or StreamLoop of a loaded model; `trace(ids, traceback, error)` tells of a failure.

    Reads the files of initial states.  Raises OSError.
    """
    source = BatchSource(plane, model.spin_ns)
    sequences = None if model.sequences is None else Sequences(model)
    make = _stream_loop if model.decoupled else _loop
    return make(model, backend, plane, trace, source, sequences)


def _loop(model, backend, plane, trace, source, sequences):  # noqa: PLR0913, PLR0917 - as make_loop's
    reader = BatchReader(model, plane)
    publisher = AnswerPublisher(model, plane, reader, trace)
    pinned = None
    if model.kind == "GPU":
        lent = DeviceArena(plane.library, plane.outputs.collect, publisher.writer)
        plane.outputs.owners = plane.device_arena = publisher.writer.device_arena = lent
        publisher.writer.pinned = pinned = PinnedMemory(plane)
    deliver, arrays = publisher.deliver, backend.takes_arrays
    if arrays and model.kind == "GPU":
        from tisfast_worker.device_batches import DeviceBatchCall, DeviceSpace  # noqa: PLC0415 - others never need it

        backend.space = DeviceSpace(publisher.writer, model)
        execute = DeviceBatchCall(model, backend, reader.new_lease, publisher.writer)
    elif arrays:
        backend.space = OutputSpace(publisher.writer)
        execute = BatchCall(model, backend, reader.new_lease)
    else:
        execute = backend.execute
    runner = Runner(model, execute, trace)
    if pinned is not None:
        reader = PinningReader(reader, pinned)
    if sequences is not None:
        reader, runner = SequenceReader(reader, sequences), SequenceRunner(runner, sequences, publisher)
        deliver = runner.deliver
    return Loop(source, plane, reader, runner, publisher, deliver, pinned)


def _stream_loop(model, backend, plane, trace, source, sequences):  # noqa: PLR0913, PLR0917 - as make_loop's
    stream_writer = StreamWriter(model, plane, trace, sequences)
    if model.kind == "GPU":
        plane.device_arena = stream_writer.lend(plane.library)
    reader = StreamReader(model, plane, stream_writer)
    if sequences is not None:
        reader = SequenceReader(reader, sequences)
    runner = Runner(model, backend.start, trace)
    loop = StreamLoop(model, source, plane, reader, runner, stream_writer)
    backend.failed, backend.finished = loop.failed, loop.finished
    return loop
