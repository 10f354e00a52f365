// SPDX-License-Identifier: Apache-2.0
//
// moe.hpp - libmoe for C++17 and newer: header-only, over moe.h, nothing to link beside libmoe.
//
//   libmoe::Context context = libmoe::Context::create();  // a thread for each core
//   libmoe::Checkpoint model = libmoe::Checkpoint::open("checkpoint", context);
//   libmoe::Layer layer = model.layer(0, context);
//   layer.apply({hidden, {tokens, width}}, {logits, {tokens, experts}}, {out, {tokens, width}});
//
// - An object owns its handle: it can be moved, not copied, and ends the handle. Objects keep what they need alive, so
//   they may end in any order. get() lends the handle for calls of moe.h, release() gives it away.
// - An empty object (Context{}, Platform{}, Control{}) is NULL for the library: one thread, this machine, no control.
// - Each fallible function has two forms: create() returns the value and throws libmoe::Error; try_create() returns
//   Result<T> and never throws. With -fno-exceptions only the second form is there.
// - Callbacks are std::function. What they throw is caught before it reaches the library, and fails the call.
// - Which calls may run at once: the comments of moe.h ([any], [excl]).
//
// The names are in `namespace libmoe`, not in `moe`: that one is the namespace of the library's own C++ code, which is
// in the same program with libmoe.a, and in the same files in the library's tests. The inline namespace (cpp/error.hpp)
// keeps two versions of this header apart, and files compiled with exceptions from those without.
#pragma once

#include <moe/cpp/checkpoint.hpp>
#include <moe/cpp/config.hpp>
#include <moe/cpp/context.hpp>
#include <moe/cpp/dist.hpp>
#include <moe/cpp/error.hpp>
#include <moe/cpp/layer.hpp>
#include <moe/cpp/tensor.hpp>
#include <moe/cpp/weights.hpp>
