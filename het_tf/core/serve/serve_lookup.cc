#include "het_tf/core/serve/serve_lookup.h"

namespace het::serve {

Status Lookup(Span<const ServeRead> reads) { return LookupRows(reads); }

}  // namespace het::serve
