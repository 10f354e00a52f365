"""What a program lends to the library: progress, threads, log, memory; and what these may do wrong."""
import concurrent.futures
import ctypes
import gc
import threading
import unittest
from unittest import mock

import numpy as np

import libmoe
from libmoe import LogLevel
from test_libmoe import DOCUMENT, batch, layer, parts, tensors


def sources(role, expert, shard):
    return tensors()[role][expert] if shard is None else None


class Callbacks(unittest.TestCase):
    def setUp(self):
        self.big = dict(DOCUMENT, num_experts=64, hidden_dim=256, intermediate_size=128)

    def long_conversion(self, control, context=None):
        config = libmoe.Config(self.big)
        shapes = {"w13_weight": ((64, 256, 256), np.int8), "w13_scale": ((64, 256, 8), np.uint16),
                  "w2_weight": ((64, 256, 128), np.int8), "w2_scale": ((64, 256, 4), np.uint16)}
        weights = libmoe.Weights(config)
        for role, (shape, kind) in shapes.items():
            weights.set(role, np.ones(shape, kind))
        return libmoe.convert(libmoe.Selection(config), weights, context, control=control)

    def test_progress_and_cancellation(self):
        seen = []
        with libmoe.Control(lambda done, total: seen.append((done, total))) as control:
            self.long_conversion(control).close()
            self.assertEqual(control.progress, seen[-1])
        self.assertEqual(seen[-1][0], seen[-1][1])
        self.assertEqual(seen, sorted(seen))

        with libmoe.Control(lambda done, total: control.cancel()) as control:
            with self.assertRaises(libmoe.Cancelled):
                self.long_conversion(control)
            with self.assertRaises(libmoe.Cancelled):
                control.report(1, 2)
            it, (hidden, logits) = parts(), batch(2)
            with self.assertRaises(libmoe.Cancelled):
                it.layer.apply(hidden, logits, control=control)

        def stop(done, total):
            raise RuntimeError("enough")
        with libmoe.Control(stop) as control:
            with self.assertRaises(libmoe.CallbackError) as caught:
                self.long_conversion(control)
            self.assertEqual(str(caught.exception.__cause__), "enough")

        def interrupt(done, total):
            raise KeyboardInterrupt
        with libmoe.Control(interrupt) as control, self.assertRaises(KeyboardInterrupt):
            self.long_conversion(control)

        def close(done, total):
            with self.assertRaises(libmoe.Busy):
                control.close()
        with libmoe.Control(close) as control:
            self.long_conversion(control).close()
        with self.assertRaisesRegex(libmoe.InvalidHandle, "this control is closed"):
            self.long_conversion(control)
        with self.assertRaisesRegex(TypeError, "control: expected a Control of libmoe, got int"):
            self.long_conversion(5)
        with self.assertRaisesRegex(TypeError, "progress: expected a function"):
            libmoe.Control(5)

    def test_cancelled_from_another_thread(self):
        with libmoe.Control() as control:
            started, failures = threading.Event(), []

            def get(role, expert, shard):
                started.set()
                go_on.wait(10)
                return None
            go_on = threading.Event()

            def run():
                try:
                    libmoe.convert(libmoe.Selection(config), weights, control=control)
                except libmoe.Error as error:
                    failures.append(error)
            config = libmoe.Config(DOCUMENT)
            weights = libmoe.Weights.from_source(config, lambda *where: get(*where) or sources(*where))
            thread = threading.Thread(target=run)
            thread.start()
            started.wait(10)
            control.cancel()
            go_on.set()
            thread.join(10)
            self.assertIsInstance(failures[0], libmoe.Cancelled)

    def test_parallel_for_of_the_caller(self):
        hidden, logits = batch(64)
        expected = layer().apply(hidden, logits)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            used = set()

            def parallel_for(count, task):
                def run(index):
                    used.add(threading.get_ident())
                    task(index)
                list(pool.map(run, range(count)))
            with libmoe.Context(parallel_for=parallel_for, num_threads=3) as context:
                self.assertEqual(context.report()["threads"], 3)
                it = layer(context)
            np.testing.assert_array_equal(it.apply(hidden, logits), expected)
            self.assertNotIn(threading.get_ident(), used)
            self.assertTrue(used)

    def test_a_parallel_for_that_errs(self):
        hidden, logits = batch(64)
        tasks = []

        def leaves_out(count, task):
            tasks.append(task)
            for index in range(count - 1):
                task(index)

        def raises(count, task):
            raise OSError("no threads left")

        def twice(count, task):
            for index in (*range(count), *range(count)):
                task(index)
        it = parts()
        with libmoe.Context(parallel_for=twice, num_threads=2) as context:
            np.testing.assert_array_equal(libmoe.Layer(it.selection, it.packed, context).apply(hidden, logits),
                                          it.layer.apply(hidden, logits))
        for function, cause in ((leaves_out, type(None)), (raises, OSError)):
            with libmoe.Context(parallel_for=function, num_threads=2) as context:
                one = libmoe.Layer(it.selection, it.packed, context)
            with self.assertRaisesRegex(libmoe.CallbackError, "parallel_for") as caught:
                one.apply(hidden, logits)
            self.assertIsInstance(caught.exception.__cause__, cause)
        with self.assertRaisesRegex(libmoe.InvalidHandle, "this task is closed"):
            tasks[0](0)
        for wrong in (0, -1):
            with self.assertRaises(libmoe.InvalidArgument):
                libmoe.Context(parallel_for=raises, num_threads=wrong)
        with self.assertRaisesRegex(ValueError, "num_threads"):
            libmoe.Context(parallel_for=raises, num_threads=2**40)

    def test_log(self):
        lines = []
        with libmoe.Context(log=lambda *line: lines.append(line), log_level="trace") as context:
            layer(context).apply(*batch(2))
            self.assertTrue(lines)
            self.assertTrue(all(isinstance(line[0], LogLevel) and line[1] and line[2] for line in lines))
            self.assertEqual([entry["message"] for entry in context.take_log()], [line[2] for line in lines])
        with self.assertRaisesRegex(TypeError, "log: expected a function"):
            libmoe.Context(log=5)
        with self.assertRaises(libmoe.InvalidConfig):
            libmoe.Context(threads="many")

    def test_allocator(self):
        libc, live = ctypes.CDLL(None), {}
        libc.aligned_alloc.restype, libc.aligned_alloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
        libc.free.argtypes = (ctypes.c_void_p,)

        def allocate(user, size, alignment, node):
            address = libc.aligned_alloc(alignment, -(-size // alignment) * alignment)
            live[address] = size
            return address

        def deallocate(user, address, size, alignment):
            self.assertEqual(live.pop(address), size)
            libc.free(address)
        kinds = libmoe.abi
        ops = libmoe.moe_allocator_ops(struct_size=ctypes.sizeof(libmoe.moe_allocator_ops),
                                       allocate=kinds.moe_allocator_ops_allocate(allocate),
                                       deallocate=kinds.moe_allocator_ops_deallocate(deallocate))
        with libmoe.Context(allocator=ops) as context:
            it = parts(context)
            del ops
            self.assertTrue(live)
            it.layer.apply(*batch(9))
            it.layer.close()
            it.packed.close()
        self.assertEqual(live, {})
        with self.assertRaisesRegex(TypeError, "allocator: "):
            libmoe.Context(allocator=5)

    def test_a_callback_does_not_wait_for_its_own_call(self):
        config, mine, other = libmoe.Config(DOCUMENT), threading.get_ident(), threading.Event()

        def get(role, expert, shard):
            for thing in (weights, selection, context):
                with self.assertRaisesRegex(libmoe.Busy, f"this {thing._kind} is in use by a call that may wait"):
                    thing.close()
            if threading.get_ident() != mine:
                other.set()
            other.wait(0.5)  # the first call is always of this thread
            return sources(role, expert, shard)
        selection = libmoe.Selection(config)
        with libmoe.Weights.from_source(config, get) as weights, libmoe.Context(threads=3) as context:
            libmoe.convert(selection, weights, context).close()
        self.assertTrue(other.is_set(), "no thread of the library asked")

    def test_a_source_may_ask_its_set(self):
        def get(role, expert, shard):
            if role == "w13_weight":
                weights.get("w2_weight", expert)
            return sources(role, expert, shard)
        weights = libmoe.Weights.from_source(libmoe.Config(DOCUMENT), get)
        thread = threading.Thread(target=weights.get, args=("w13_weight", 1), daemon=True)
        thread.start()
        thread.join(20)
        self.assertFalse(thread.is_alive(), "waits for itself")

    def test_errors_without_a_text(self):
        class Speechless(Exception):
            def __str__(self):
                raise ValueError("no text")
        config = libmoe.Config(DOCUMENT)
        selection = libmoe.Selection(config)
        for wrong, text in (Speechless(), "Speechless"), (ValueError("half \udcff"), r"ValueError: half \\udcff"):
            def get(role, expert, shard):
                raise wrong
            lost = []
            with libmoe.Weights.from_source(config, get) as weights, mock.patch("sys.unraisablehook", lost.append):
                with self.assertRaisesRegex(libmoe.CallbackError, text) as caught:
                    libmoe.convert(selection, weights)
                self.assertIs(caught.exception.__cause__, wrong)
            self.assertEqual(lost, [])

    def test_each_call_has_what_its_own_functions_raised(self):
        def parallel_for(count, task):
            for index in range(count):
                task(index)
        with libmoe.Context(parallel_for=parallel_for, num_threads=2) as context:
            one, seen, mine = layer(context), [], ValueError("mine")

            def other():
                try:
                    seen.append(one.apply(*batch(64)).shape)
                except ValueError as error:
                    seen.append(error)
            context._raised[0].append(mine)  # by a call of this thread that has not ended
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            self.assertEqual(seen, [batch(64)[0].shape])
            self.assertIs(context._raised[0].pop(), mine)

    def test_nothing_of_a_callback_is_left(self):
        gc.collect()
        before = len(libmoe._handle.kept._objects)
        with libmoe.Control(print), libmoe.Context(log=print, parallel_for=print, num_threads=1):
            self.assertEqual(len(libmoe._handle.kept._objects), before + 3)
        for wrong in (lambda: libmoe.Context(log=print, threads="many"), lambda: libmoe.Context(log=print, cpus=object()),
                      lambda: libmoe.Context(log=print, parallel_for=print, num_threads=2**40),
                      lambda: libmoe.convert(parts().selection, 5, into=bytearray(64)),
                      lambda: libmoe.Packed.load_memory(b"nothing"), lambda: libmoe.Packed.load_memory(b"", context=5)):
            with self.assertRaises((TypeError, ValueError, libmoe.Error)):
                wrong()
        gc.collect()
        self.assertEqual(len(libmoe._handle.kept._objects), before)


if __name__ == "__main__":
    unittest.main()
