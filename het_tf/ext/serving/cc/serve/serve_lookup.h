// Reading the rows of a batch from serving files.
#pragma once

#include "het_tf/ext/serving/cc/serve/row_lookup.h"
#include "het_tf/ext/serving/cc/serve/serve_file.h"

namespace het::serve {

using ServeRead = RowRead<ServeFile>;

// See LookupRows.
Status Lookup(Span<const ServeRead> reads);

}  // namespace het::serve
