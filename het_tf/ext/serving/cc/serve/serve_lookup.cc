#include "het_tf/ext/serving/cc/serve/serve_lookup.h"

namespace het::serve {

Status Lookup(Span<const ServeRead> reads) { return LookupRows(reads); }

}  // namespace het::serve
