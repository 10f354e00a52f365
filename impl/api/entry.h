// What the files with the entry points of moe.h begin with: the wall's tools, by their short names.
//
// An entry has this shape: take what is handed over (HandedOver), then guard() with a body that clears its
// outputs, checks in the order NULL -> struct_size -> handle -> enum -> dtype -> rank -> shape -> strides ->
// overlap -> semantics, calls the rooms below, and sets the outputs last. Included by .cpp files only:
// entry points live in the global namespace.
#pragma once

#include "api/guard.h"
#include "api/handle.h"
#include "api/struct_io.h"
#include "api/tensor_check.h"

using moe::cat;
using moe::Check;
using moe::Code;
using moe::fail;
using moe::ok;
using moe::Result;
using moe::TensorView;
using moe::api::callback_given;
using moe::api::check_handle;
using moe::api::check_optional;
using moe::api::check_struct_size;
using moe::api::clear;
using moe::api::end_handle;
using moe::api::guard;
using moe::api::guard_value;
using moe::api::is_live;
using moe::api::known_flags;
using moe::api::make_handle;
using moe::api::make_text;
using moe::api::not_null;
using moe::api::object_of;
using moe::api::peek_struct;
using moe::api::read_struct;
using moe::api::read_tensor;
using moe::api::reserved_zero;
using moe::api::tensor_of;
using moe::api::text_of;
using moe::api::view_of;
using moe::api::write_struct;
using moe::weights::HandedOver;
