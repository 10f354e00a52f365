// The packed file of a converted layer: whether it is the one that the manifest names.
#pragma once

#include "base/control.h"
#include "base/os/file.h"
#include "base/parallel.h"
#include "base/result.h"
#include "io/packed.h"
#include "model/manifest.h"

namespace moe::model {

// Opened, and of the size that the manifest names. missing_weight: it is not there; io: it ends too early.
Result<File> open_layer_file(const Folder& folder, const StoredLayer& stored);
// Everything before the weights, and the hash of their hashes.
Check check_layer_head(const File& file, const StoredLayer& stored);

// Whether it need not be made. verify: its weights are compared with their hashes, too.
Result<bool> has_layer_file(const Folder& folder, const StoredLayer& stored, bool verify, const Parallel& parallel,
                            Control* control);

}  // namespace moe::model
