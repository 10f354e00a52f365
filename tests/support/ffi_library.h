// The shared library as a caller without header and compiler sees it: dlopen, moe_abi_json and libffi.
// Arguments and results are 64-bit words; structs are bytes laid out by the description.
#pragma once

#include <dlfcn.h>
#include <ffi.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/rooms.h"

namespace moe::test {

using Word = std::uint64_t;
using nlohmann::json;

inline Word word_of(const void* p) { return reinterpret_cast<Word>(p); }
template <class T>
T* pointer_of(Word w) {
  return reinterpret_cast<T*>(w);
}
inline std::string head_of(const std::string& type) {
  return type.substr(0, type.find(':'));
}  // "i32:moe_dtype" -> "i32"
inline std::string tail_of(const std::string& type) {
  return type.find(':') == std::string::npos ? "" : type.substr(type.find(':') + 1);
}

inline ffi_type* ffi_type_of(const std::string& type) {
  const std::string h = head_of(type);
  if (h == "void") return &ffi_type_void;
  if (h == "i32") return &ffi_type_sint32;
  if (h == "u32") return &ffi_type_uint32;
  if (h == "i64") return &ffi_type_sint64;
  if (h == "u64" || h == "size") return &ffi_type_uint64;
  if (h == "f64") return &ffi_type_double;
  if (h == "f32") return &ffi_type_float;
  return &ffi_type_pointer;
}

class FfiLibrary {
 public:
  explicit FfiLibrary(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    auto* text = reinterpret_cast<const char* (*)()>(symbol("moe_abi_json"));
    if (text == nullptr) throw std::runtime_error("no moe_abi_json");
    abi_ = json::parse(text());
  }
  FfiLibrary(const FfiLibrary&) = delete;
  FfiLibrary& operator=(const FfiLibrary&) = delete;
  ~FfiLibrary() { dlclose(handle_); }

  const json& abi() const { return abi_; }
  void* symbol(const std::string& name) const { return dlsym(handle_, name.c_str()); }
  const json& item(const char* list, const std::string& name) const {
    for (const json& x : abi_[list])
      if (x["name"] == name) return x;
    throw std::runtime_error("no " + name + " in " + list);
  }
  std::int64_t value(const std::string& constant) const {
    for (const json& e : abi_["enums"])
      if (e["values"].contains(constant)) return e["values"][constant];
    throw std::runtime_error("no constant " + constant);
  }

  // The statuses that the description lists for a function are all that it gives.
  void expect_listed(const json& function, std::int32_t status) const {
    for (const std::string name : function["statuses"])
      if (value(name) == status) return;
    throw std::runtime_error(function["name"].get<std::string>() + " gave status " + std::to_string(status) +
                             ", which is not in its list");
  }
  // Narrow results come back widened by their sign.
  Word call(const std::string& name, std::vector<Word> args) const {
    const json& f = item("functions", name);
    std::vector<ffi_type*> types;
    for (const json& p : f["params"]) types.push_back(ffi_type_of(p["type"]));
    if (types.size() != args.size()) throw std::runtime_error(name + ": wrong number of arguments");
    ffi_cif cif;
    if (ffi_prep_cif(&cif, FFI_DEFAULT_ABI, static_cast<unsigned>(types.size()), ffi_type_of(f["returns"]),
                     types.data()) != FFI_OK)
      throw std::runtime_error(name + ": ffi_prep_cif");
    std::vector<void*> values;
    for (Word& w : args) values.push_back(&w);
    void* address = symbol(name);
    if (address == nullptr) throw std::runtime_error("no symbol " + name);
    ffi_arg result = 0;
    ffi_call(&cif, reinterpret_cast<void (*)()>(address), &result, values.data());
    if (f.contains("statuses")) expect_listed(f, static_cast<std::int32_t>(result));
    return static_cast<Word>(result);
  }
  std::int32_t status(const std::string& name, std::vector<Word> args) const {
    return static_cast<std::int32_t>(call(name, std::move(args)));
  }
  const char* text(const std::string& name, std::vector<Word> args) const {
    return pointer_of<const char>(call(name, std::move(args)));
  }

 private:
  void* handle_;
  json abi_;
};

// A struct by its description, with room behind it for the size sweeps; zeroed, struct_size set.
class FfiStruct {
 public:
  FfiStruct(const FfiLibrary& lib, const std::string& name) : layout_(&lib.item("structs", name)), bytes_(8192 / 8) {
    set("struct_size", (*layout_)["size"].get<Word>());
  }
  const json& layout() const { return *layout_; }
  char* data() { return reinterpret_cast<char*>(bytes_.data()); }
  Word word() { return word_of(data()); }
  FfiStruct& set(const std::string& member, Word value, std::size_t index = 0) {
    const json& m = find(member);
    const std::size_t size = ffi_type_of(m["type"])->size;
    std::memcpy(data() + m["offset"].get<std::size_t>() + index * size, &value, size);
    return *this;
  }
  Word get(const std::string& member, std::size_t index = 0) {
    const json& m = find(member);
    const std::size_t size = ffi_type_of(m["type"])->size;
    Word value = 0;
    std::memcpy(&value, data() + m["offset"].get<std::size_t>() + index * size, size);
    return value;
  }

 private:
  const json& find(const std::string& member) const {
    for (const json& m : (*layout_)["members"])
      if (m["name"] == member) return m;
    throw std::runtime_error("no member " + member);
  }
  const json* layout_;
  std::vector<Word> bytes_;
};

// A function made at run time, of a callback type of the description. It keeps the last words it was given.
class FfiCallback {
 public:
  using Body = std::uint64_t (*)(FfiCallback& self, const std::vector<Word>& args);
  FfiCallback(const FfiLibrary& lib, const std::string& type, Body body, void* user = nullptr)
      : context(user), body_(body) {
    const json& c = lib.item("callbacks", type);
    for (const json& p : c["params"]) types_.push_back(ffi_type_of(p));
    result_ = ffi_type_of(c["returns"]);
    closure_ = static_cast<ffi_closure*>(ffi_closure_alloc(sizeof(ffi_closure), &code_));
    if (closure_ == nullptr ||
        ffi_prep_cif(&cif_, FFI_DEFAULT_ABI, static_cast<unsigned>(types_.size()), result_, types_.data()) != FFI_OK ||
        ffi_prep_closure_loc(closure_, &cif_, enter, this, code_) != FFI_OK)
      throw std::runtime_error("cannot make a closure of " + type);
  }
  FfiCallback(const FfiCallback&) = delete;
  FfiCallback& operator=(const FfiCallback&) = delete;
  ~FfiCallback() { ffi_closure_free(closure_); }
  Word word() const { return word_of(code_); }

  void* context;
  int calls = 0;

 private:
  static void enter(ffi_cif* cif, void* ret, void** args, void* user) {
    auto& self = *static_cast<FfiCallback*>(user);
    std::vector<Word> words(cif->nargs);
    for (unsigned i = 0; i < cif->nargs; ++i) {
      if (cif->arg_types[i] == &ffi_type_sint32)
        words[i] = static_cast<Word>(static_cast<std::int64_t>(*static_cast<std::int32_t*>(args[i])));
      else
        std::memcpy(&words[i], args[i], cif->arg_types[i]->size);
    }
    ++self.calls;
    const Word r = self.body_(self, words);
    if (cif->rtype != &ffi_type_void) *static_cast<ffi_arg*>(ret) = static_cast<ffi_arg>(r);
  }

  Body body_;
  std::vector<ffi_type*> types_;
  ffi_type* result_ = nullptr;
  ffi_cif cif_{};
  ffi_closure* closure_ = nullptr;
  void* code_ = nullptr;
};

}  // namespace moe::test
