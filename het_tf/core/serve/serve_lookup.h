// Reading the rows of a batch from serving files.
#pragma once

#include "het_tf/core/base/span.h"
#include "het_tf/core/serve/serve_file.h"

namespace het::serve {

struct ServeRead {
  const ServeFile* file;
  Span<const Key> ids;
  float* out;  // ids.size() rows of file->dim() floats
};

// Reads all rows. Ids of different reads are searched together, so that their memory latencies overlap.
// Allocates and locks nothing; thread-safe. DataLoss: a file's index is damaged.
Status Lookup(Span<const ServeRead> reads);

}  // namespace het::serve
