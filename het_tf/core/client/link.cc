#include "het_tf/core/client/link.h"

#include <algorithm>

namespace het {

void Link::Renumber(ClientId id) {
  client = id;
  const uint64_t unsent = log.next_seq() - 1 - ever_sent;
  log.Renumber();
  ever_sent = log.next_seq() - 1 - std::min(unsent, log.next_seq() - 1);
  sent_through = 0;
  written = 0;
  written_on = 0;
  asked_on = 0;
  told = 0;
}

}  // namespace het
