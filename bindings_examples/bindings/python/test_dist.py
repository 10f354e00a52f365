"""A layer over several ranks: the bits of one process, errors of one rank, transports that a program writes."""
import gc
import os
import queue
import subprocess
import sys
import threading
import types
import unittest
import weakref
from unittest import mock

import numpy as np

import libmoe
from test_libmoe import DOCUMENT, E, H, K, batch, layer, tensors

SOON = {"timeout_ms": 20000}


def on_ranks(comms, function):
    """What function(rank, comm) gives or raises on a thread for each of them; they are closed."""
    seen = [None] * len(comms)

    def run(rank, comm):
        try:
            with comm:
                seen[rank] = function(rank, comm)
        except BaseException as error:
            seen[rank] = error
    threads = [threading.Thread(target=run, args=it, daemon=True) for it in enumerate(comms)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a rank does not end"
    return seen


def part_of(dist, context=None):
    """The layer of this rank's experts, or None."""
    held = dist.report()["experts"]
    if not held:
        return None
    with dist.local_config() as config, libmoe.Weights(config) as weights:
        for role, array in tensors().items():
            weights.set(role, array[held])
        selection = libmoe.Selection(config, context)
        return libmoe.Layer(selection, libmoe.convert(selection, weights, context), context)


def spread(comm, options=None, context=None):
    """A Dist with its layer."""
    with libmoe.Config(DOCUMENT) as config:
        dist = libmoe.Dist(comm, config, options, context)
    dist.attach(part_of(dist, context))
    return dist


def pieces(tokens):
    """Tokens of each rank: arrays, and what one process makes of them."""
    hidden, logits = batch(sum(tokens))
    ends = np.cumsum(tokens)[:-1]
    return list(zip(*(np.split(array, ends) for array in (hidden, logits, layer().apply(hidden, logits)))))


class Mail:
    """A transport of queues, one for each pair of ranks."""

    def __init__(self, queues, rank, size):
        self.queues, self.rank, self.size = queues, rank, size
        self.number, self.letters, self.pauses = 0, {}, 0

    @classmethod
    def all(cls, size):
        queues = {(a, b): queue.SimpleQueue() for a in range(size) for b in range(size)}
        return [cls(queues, rank, size) for rank in range(size)]

    def start(self, send, send_counts, send_displs, recv, recv_counts, recv_displs, row_bytes):
        assert send.readonly and send.contiguous and not recv.readonly
        op = types.SimpleNamespace(number=self.number, left=set(range(self.size)), recv=np.frombuffer(recv, np.uint8),
                                   counts=recv_counts, displs=recv_displs, row_bytes=row_bytes)
        self.number += 1
        for r in range(self.size):
            first = send_displs[r] * row_bytes
            self.queues[self.rank, r].put((op.number, bytes(send[first:first + send_counts[r] * row_bytes])))
        return op

    def test(self, op):
        for r in range(self.size):
            while not self.queues[r, self.rank].empty():
                number, letter = self.queues[r, self.rank].get()
                self.letters[number, r] = letter
            letter = self.letters.pop((op.number, r), None)
            if letter is not None:
                assert len(letter) == op.counts[r] * op.row_bytes
                first = op.displs[r] * op.row_bytes
                op.recv[first:first + len(letter)] = np.frombuffer(letter, np.uint8)
                op.left.remove(r)
        return not op.left


class Ranks(unittest.TestCase):
    def same(self, seen, parts):
        self.assertEqual([got for got in seen if isinstance(got, BaseException)], [])
        for got, part in zip(seen, parts):
            self.assertEqual((got.dtype, got.shape), (part[2].dtype, part[2].shape))
            self.assertEqual(got.tobytes(), part[2].tobytes())

    def test_the_bytes_of_one_process(self):
        for tokens in ([9], [9, 4], [0, 7], [5, 0, 2], [0, 0, 0], [1, 2, 3, 0, 4, 1]):  # six ranks: two have no expert
            for options in (None, {"chunk_tokens": 3, "placement": "round_robin"}):
                parts = pieces(tokens)

                def run(rank, comm):
                    self.assertEqual((comm.rank, comm.size), (rank, len(tokens)))
                    comm.set_options(SOON)
                    with spread(comm, options) as dist:
                        for _ in range(2):
                            out = dist.apply(*parts[rank][:2])
                    return out
                self.same(on_ranks(libmoe.Comm.threads(len(tokens)), run), parts)

    def test_given_experts_and_arrays(self):
        hidden, logits = batch(6)
        ids = np.argsort(-logits, axis=1, kind="stable")[:, :K].astype(np.int32)
        weights = np.full((6, K), 0.5, np.float32)
        want = layer().apply(hidden, topk_ids=ids, topk_weights=weights)

        def run(rank, comm):
            mine, out = slice(3 * rank, 3 * rank + 3), np.ones((3, H), np.float32)
            chosen = np.zeros((3, K), np.int32)
            with libmoe.Context(threads=2) as context, libmoe.Control() as control:
                dist = spread(comm, context=context)
                self.assertIs(dist.apply(hidden[mine], topk_ids=ids[mine], topk_weights=weights[mine], out=out,
                                         flags=libmoe.ApplyFlags.ACCUMULATE, control=control), out)
                dist.apply(hidden[mine], logits[mine], out_topk_ids=chosen)
                tensor = dist.apply(libmoe.Tensor(hidden[mine], libmoe.DType.F32), logits[mine])
                self.assertEqual(tensor.dtype, "f32")
            np.testing.assert_array_equal(chosen, ids[mine])
            np.testing.assert_allclose(out, want[mine] + 1, atol=1e-6)
        self.assertEqual(on_ranks(libmoe.Comm.threads(2), run), [None, None])

    def test_in_steps(self):
        parts = pieces([8, 3])

        def run(rank, comm):
            with spread(comm, {"chunk_tokens": 3}) as dist:
                with dist.begin(*parts[rank][:2]) as begun:
                    self.assertIn("under way", repr(begun))
                    with self.assertRaises(libmoe.Busy):
                        dist.begin(*parts[rank][:2])
                    while not begun.poll():
                        pass
                    self.assertTrue(begun.poll())
                    first = begun.finish()
                for after in (begun.poll, begun.finish):
                    with self.assertRaisesRegex(libmoe.InvalidHandle, "this dist_call is closed"):
                        after()
                begun.close()
                self.assertIn("closed", repr(begun))
                begun = dist.begin(*(array.copy() for array in parts[rank][:2]))  # it keeps them, and the rest
            comm.close()
            gc.collect()
            self.assertEqual(begun.finish().tobytes(), first.tobytes())
            return first
        self.same(on_ranks(libmoe.Comm.threads(2), run), parts)

    def test_a_call_that_is_dropped(self):
        parts, dropped = pieces([2, 2]), threading.Event()

        def run(rank, comm):
            comm.set_options({"timeout_ms": 500})
            with spread(comm) as dist:
                if rank == 0:
                    dist.begin(*parts[rank][:2]).close()
                    dropped.set()
                    with self.assertRaises(libmoe.CommPoisoned):
                        dist.apply(*parts[rank][:2])
                    self.assertTrue(dist.report()["poisoned"])
                    self.assertIn("poisoned", repr(dist))
                else:
                    dropped.wait(10)
                    with self.assertRaises(libmoe.CommError) as caught:
                        dist.apply(*parts[rank][:2])
                    self.assertIn(caught.exception.details["reason"], ("timeout", "transport"))  # or rank 0 is gone
        self.assertEqual(on_ranks(libmoe.Comm.threads(2), run), [None, None])

    def test_close_waits_for_finish(self):
        parts, go_on = pieces([2, 2]), threading.Event()

        def run(rank, comm):
            comm.set_options(SOON)
            with spread(comm) as dist:
                if rank == 1:
                    go_on.wait(10)
                    return dist.apply(*parts[rank][:2])
                begun, outs, ended = dist.begin(*parts[rank][:2]), [], []
                threads = [threading.Thread(target=lambda: outs.append(begun.finish()), daemon=True),
                           threading.Thread(target=lambda: ended.append(begun.close()), daemon=True)]
                for thread in threads:
                    thread.start()
                    thread.join(0.1)
                with self.assertRaises(libmoe.InvalidHandle):
                    begun.poll()
                self.assertEqual((outs, ended), ([], []))
                go_on.set()
                for thread in threads:
                    thread.join(20)
                self.assertEqual(len(ended), 1)
                with self.assertRaises(libmoe.InvalidHandle):
                    begun.finish()
                return outs[0]
        self.same(on_ranks(libmoe.Comm.threads(2), run), parts)

    def test_what_is_wrong_on_one_rank(self):
        parts = pieces([4, 5, 1])
        hidden, logits, _ = parts[1]
        wrong = [((hidden, logits[:2]), {}, libmoe.ShapeError), ((hidden[0], logits), {}, libmoe.ShapeError),
                 ((hidden,), {}, TypeError), (("tokens", logits), {}, TypeError),
                 ((hidden, logits), {"flags": "x"}, TypeError), ((hidden, logits), {"control": 5}, TypeError),
                 ((hidden, logits), {"workspace": bytearray(64)}, libmoe.Error),
                 ((hidden, logits), {"topk_ids": np.zeros((5, K), np.int32)}, libmoe.Error),
                 ((np.zeros((9, H), np.float32), np.zeros((9, E), np.float32)), {}, libmoe.BufferTooSmall)]

        def run(rank, comm):
            comm.set_options(SOON)
            with spread(comm, {"max_tokens_per_rank": 8}) as dist:
                for given, more, kind in wrong:
                    for name in ("apply", "begin"):
                        if rank == 1:
                            with self.assertRaises(kind):
                                getattr(dist, name)(*given, **more)
                            continue
                        with self.assertRaises(libmoe.PeerError) as caught:
                            dist.apply(*parts[rank][:2])
                        self.assertEqual(caught.exception.details["rank"], 1)
                    out = dist.apply(*parts[rank][:2])
            return out
        self.same(on_ranks(libmoe.Comm.threads(3), run), parts)

    def test_what_is_wrong_at_the_start(self):
        def run(rank, comm):
            comm.set_options(SOON)
            closed = libmoe.Config(DOCUMENT)
            closed.close()
            config = libmoe.Config(DOCUMENT)
            for wrong, kind in ((5, TypeError), (None, TypeError), (closed, libmoe.InvalidHandle)):
                with self.assertRaises(libmoe.PeerError if rank else kind):
                    libmoe.Dist(comm, config if rank else wrong)
            for options, kind in (("{", libmoe.InvalidConfig), (5, TypeError), ({"mode": "x"}, libmoe.InvalidConfig)):
                with self.assertRaises(libmoe.PeerError if rank else kind):
                    libmoe.Dist(comm, config, None if rank else options)
            with self.assertRaises(libmoe.PeerError if rank else TypeError):
                libmoe.Dist(comm, config, context=None if rank else 5)
            with self.assertRaises(libmoe.ConfigMismatch) as caught:
                libmoe.Dist(comm, config, {"chunk_tokens": rank + 1})
            self.assertEqual(caught.exception.details["pointer"], "/options/chunk_tokens")
            with libmoe.Dist(comm, config) as dist:
                with self.assertRaises(libmoe.PeerError if rank else TypeError):
                    dist.attach(part_of(dist) if rank else 5)
                with self.assertRaises(libmoe.StateError):
                    dist.apply(*batch(1))
                dist.attach(part_of(dist))
                self.assertRegex(repr(dist), f"rank {rank} of 2, 2 experts, attached")
                dist.apply(*batch(1))
        self.assertEqual(on_ranks(libmoe.Comm.threads(2), run), [None, None])

    def test_options_and_what_it_tells(self):
        with self.assertRaisesRegex(TypeError, "comm: expected a Comm of libmoe"):
            libmoe.Dist(5, libmoe.Config(DOCUMENT))
        for size, kind in ((0, libmoe.InvalidArgument), (-1, libmoe.InvalidArgument), (5000, libmoe.InvalidArgument),
                           (2**40, ValueError), ("2", TypeError)):
            with self.assertRaises(kind):
                libmoe.Comm.threads(size)
        comm, = libmoe.Comm.threads(1)
        self.assertEqual(repr(comm), "<libmoe.Comm rank 0 of 1>")
        comm.set_options({"timeout_ms": 100, "poll_us": 1, "on_timeout": "error"})
        comm.set_options(None)
        for wrong, kind in (({"timeout": 1}, libmoe.InvalidConfig), (5, TypeError)):
            with self.assertRaises(kind):
                comm.set_options(wrong)
        options = {"placement": [[0, 1, 2, 3]], "chunk_tokens": 5}
        with spread(comm, options) as dist, libmoe.Config(DOCUMENT) as whole:
            it = dist.report()
            self.assertEqual({name: it["options"][name] for name in options}, options)
            self.assertEqual((it["rank"], it["size"], it["experts"], it["attached"]), (0, 1, [0, 1, 2, 3], True))
            with whole.merge(dist.patch) as merged, dist.local_config() as local:
                self.assertEqual(merged.document, local.document)
            with dist.raw() as pointer, self.assertRaises(libmoe.Busy):
                self.assertTrue(pointer)
                dist.close()
        for closed in (lambda: dist.apply(*batch(1)), lambda: dist.begin(*batch(1)), dist.report, dist.local_config):
            with self.assertRaisesRegex(libmoe.InvalidHandle, "this dist is closed"):
                closed()
        comm.close()
        with self.assertRaisesRegex(libmoe.InvalidHandle, "this comm is closed"):
            comm.rank
        self.assertEqual((repr(comm), repr(dist)), ("<libmoe.Comm closed>", "<libmoe.Dist closed>"))


class Transports(unittest.TestCase):
    same = Ranks.same

    def comms(self, size, kind=Mail, options=SOON):
        return [libmoe.Comm.from_transport(one, options) for one in kind.all(size)]

    def test_queues(self):
        class Slow(Mail):
            def pause(self, microseconds):
                assert microseconds == 70
                self.pauses += 1
        for kind, options in ((Mail, SOON), (Slow, {"poll_us": 70})):
            for tokens in ([3], [4, 0], [2, 0, 5]):
                parts = pieces(tokens)

                def run(rank, comm):
                    self.assertEqual((comm.rank, comm.size), (rank, len(tokens)))
                    with spread(comm, {"chunk_tokens": 2}) as dist:
                        with dist.begin(*parts[rank][:2]) as begun:
                            while not begun.poll():
                                pass
                            begun.finish()
                        return dist.apply(*parts[rank][:2])
                self.same(on_ranks(self.comms(len(tokens), kind, options), run), parts)

    def test_what_it_raises(self):
        cut = OSError("the cable is cut")

        class Cut(Mail):
            fails = None

            def start(self, *rows):
                if self.fails == "start":
                    raise cut
                return super().start(*rows)

            def test(self, op):
                if self.fails == "test":
                    raise cut
                return super().test(op)
        for where in ("start", "test"):
            for steps in (False, True):
                transport, = Cut.all(1)
                with libmoe.Comm.from_transport(transport) as comm, spread(comm) as dist:
                    transport.fails = where
                    with self.assertRaisesRegex(libmoe.CommError, where + " failed .*OSError: the cable") as caught:
                        if steps:
                            with dist.begin(*batch(2)) as begun:
                                self.assertTrue(begun.poll())
                                begun.finish()
                        else:
                            dist.apply(*batch(2))
                    self.assertIs(caught.exception.__cause__, cut)
                    self.assertEqual(caught.exception.details["reason"], "transport")
                    transport.fails = None
                    with self.assertRaises(libmoe.CommPoisoned) as caught:
                        dist.apply(*batch(2))
                    self.assertIsNone(caught.exception.__cause__)

    def test_interruptions_wait_for_the_end(self):
        class Interrupted(Mail):
            at, times = None, 0

            def now(self, where):
                if self.at == where and not self.times:
                    self.times += 1
                    raise KeyboardInterrupt

            def start(self, *rows):
                self.now("start")
                return super().start(*rows)

            def test(self, op):
                self.now("test")
                return (self.at != "pause" or self.times) and super().test(op)

            def pause(self, microseconds):
                self.now("pause")

            def abort(self, code):
                raise SystemExit(code)
        for at, error in (("test", KeyboardInterrupt), ("pause", KeyboardInterrupt), ("start", SystemExit)):
            transport, = Interrupted.all(1)
            with libmoe.Comm.from_transport(transport, {"timeout_ms": 300, "on_timeout": "abort"}) as comm:
                with spread(comm) as dist:
                    transport.at = at
                    with self.assertRaises(error):
                        dist.apply(*batch(2))
                    self.assertEqual(dist.report()["poisoned"], at == "start")  # its operation never ends

    def test_a_rank_that_does_not_come(self):
        transport = Mail.all(2)[0]
        with libmoe.Comm.from_transport(transport, {"timeout_ms": 50}) as comm, libmoe.Config(DOCUMENT) as config:
            with self.assertRaises(libmoe.CommError) as caught:
                libmoe.Dist(comm, config)
            self.assertEqual(caught.exception.details["reason"], "timeout")
            with self.assertRaises(libmoe.CommPoisoned):
                libmoe.Dist(comm, config)

    def test_a_size_that_changes_later(self):
        mail = Mail.all(1)[0]
        seen = []

        class Growing(Mail):
            def start(self, send, send_counts, *more):
                seen.append(len(send_counts))
                self.size = 1
                op = super().start(send, send_counts, *more)
                self.size = 10 ** 8
                return op

            def test(self, op):
                self.size = 1
                done = super().test(op)
                self.size = 10 ** 8
                return done
        transport = Growing(mail.queues, 0, 1)
        with libmoe.Comm.from_transport(transport) as comm, spread(comm) as dist:
            hidden, logits = batch(3)
            np.testing.assert_array_equal(dist.apply(hidden, logits), layer().apply(hidden, logits))
        self.assertEqual(set(seen), {1})

    def test_a_poll_within_a_poll_is_refused(self):
        calls, refused = [], []

        class Polling(Mail):
            def test(self, op):
                for call in calls:
                    try:
                        call.poll()
                    except libmoe.Busy:
                        refused.append(op)
                return super().test(op)
        transport = Polling(Mail.all(1)[0].queues, 0, 1)
        with libmoe.Comm.from_transport(transport) as comm, spread(comm) as dist:
            hidden, logits = batch(3)
            calls.append(dist.begin(hidden, logits))
            while not calls[0].poll():
                pass
            call = calls.pop()
            np.testing.assert_array_equal(call.finish(), layer().apply(hidden, logits))
        self.assertGreater(len(refused), 0)

    def test_nothing_of_it_is_left(self):
        gc.collect()
        before = len(libmoe._handle.kept._objects)

        def run(rank, comm):
            dist = spread(comm)
            begun = dist.begin(*batch(2))
            comm.close()
            dist.close()
            self.assertEqual(len(libmoe._handle.kept._objects), before + 1)
            begun.finish()
        transport, = Mail.all(1)
        gone = weakref.ref(transport)
        self.assertEqual(on_ranks([libmoe.Comm.from_transport(transport, SOON)], run), [None])
        del transport
        gc.collect()
        self.assertIsNone(gone())
        for change, kind in (({"rank": 2}, libmoe.InvalidArgument), ({"rank": "x"}, TypeError),
                             ({"size": 2**40}, ValueError), ({"start": None}, TypeError), ({"pause": 5}, TypeError)):
            transport, = Mail.all(1)
            for name, value in change.items():
                setattr(transport, name, value)
            gone = weakref.ref(transport)
            with self.assertRaises(kind):
                libmoe.Comm.from_transport(transport)
            del transport
            gc.collect()
            self.assertIsNone(gone(), change)
        for options, kind in ((5, TypeError), ("{", libmoe.InvalidConfig)):
            with self.assertRaises(kind):
                libmoe.Comm.from_transport(Mail.all(1)[0], options)
        gc.collect()
        self.assertEqual(len(libmoe._handle.kept._objects), before)

    def test_objects_alive_at_exit(self):
        code = ("import libmoe, test_dist; comm = libmoe.Comm.from_transport(test_dist.Mail.all(1)[0])\n"
                "dist = test_dist.spread(comm); begun = dist.begin(*test_dist.batch(2)); print(begun.poll())")
        done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60,
                              cwd=os.path.dirname(os.path.abspath(__file__)))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "True\n", ""))


class Mpi(unittest.TestCase):
    """What needs no MPI; tests/dist/mpi_python.py has the rest."""

    def test_the_library_is_found_or_named(self):
        comm = types.SimpleNamespace(py2f=lambda: 0)
        nothing = mock.patch("os.path.exists", lambda path: False)
        for said, folder in (("Open MPI v9\0", "openmpi"), ("MPICH Version: 9", "mpich"), ("Other", None), ("", None)):
            module = types.SimpleNamespace(Get_library_version=lambda: said)
            modules = {"mpi4py": types.SimpleNamespace(), "mpi4py.MPI": module}
            with mock.patch.dict("sys.modules", modules), mock.patch.dict("os.environ"):
                os.environ.pop("LIBMOE_MPI_PATH", None)
                with mock.patch("os.path.exists", lambda path: f"/{folder}/libmoe_mpi.so.0" in path):
                    if folder:
                        self.assertIn(folder, libmoe._dist._mpi_path())
                    os.environ["LIBMOE_MPI_PATH"] = "/nowhere/libmoe_mpi.so"
                    self.assertEqual(libmoe._dist._mpi_path(), "/nowhere/libmoe_mpi.so")
                with nothing, self.assertRaisesRegex(ImportError, "/nowhere/libmoe_mpi.so is no libmoe_mpi"):
                    libmoe.Comm.from_mpi(comm)
                del os.environ["LIBMOE_MPI_PATH"]
                with nothing, self.assertRaisesRegex(ImportError, f"{folder or 'no folder'}.*LIBMOE_MPI_PATH or"):
                    libmoe.Comm.from_mpi(comm)
        with self.assertRaisesRegex(TypeError, "comm: expected a communicator of mpi4py, got int"):
            libmoe.Comm.from_mpi(5)
        with self.assertRaisesRegex(ImportError, "is no libmoe_mpi that can be loaded: .*moe_mpi_comm_create_f"):
            libmoe.Comm.from_mpi(comm, libmoe.lib.path)
        with self.assertRaises(TypeError):
            libmoe.Comm.from_mpi(comm, 5)


if __name__ == "__main__":
    unittest.main()
