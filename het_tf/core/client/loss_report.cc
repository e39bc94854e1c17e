#include "het_tf/core/client/loss_report.h"

#include <limits>
#include <utility>

#include "het_tf/core/client/messages.h"

namespace het {

void LossReport::Note() {
  if (!any()) losses_.since = transport_->Now();
}

void LossReport::OnLost(uint32_t partition, uint64_t lost, uint64_t repaired) {
  if (!tables_->empty()) {
    Counters& counters = tables_->begin()->second->counters();
    counters.lost_pushes += lost;
    counters.repaired += repaired;
  }
  Note();
  losses_.lost += lost;
  losses_.repaired += repaired;
  losses_.partitions.push_back(partition);
}

void LossReport::OnDiscarded(const std::string& table, uint64_t updates) {
  if (updates == 0) return;
  Note();
  losses_.discarded[table] += updates;
}

double LossReport::Due() const {
  return any() ? losses_.since + 1 - transport_->Now() : std::numeric_limits<double>::infinity();
}

void LossReport::Tell(bool now) {
  if (!any() || (!now && Due() > 0)) return;
  const Losses losses = std::exchange(losses_, Losses());
  if (!config_->notice) return;
  if (!losses.partitions.empty()) TellLost(losses);
  if (losses.discarded.empty()) return;
  std::string text;
  for (const auto& [table, updates] : losses.discarded) {
    text += (text.empty() ? "" : ", ") + std::to_string(updates) + " updates of table '" + table + "'";
  }
  config_->notice(text +
                  " that had not been applied were discarded: somebody loaded, cleared or dropped it. Flush "
                  "(het_tf.flush()) every worker before that to keep them");
}

void LossReport::TellLost(const Losses& losses) const {
  std::string text = PartitionNames(losses.partitions);
  const std::string where = transport_->Where(losses.partitions[0]);
  if (!where.empty()) text += " at " + where;
  text += " came to life again without " + std::to_string(losses.lost + losses.repaired) +
          " pushes of this worker that had been acknowledged: ";
  if (losses.repaired > 0) text += std::to_string(losses.repaired) + " were kept and are sent again";
  if (losses.lost > 0) {
    text += (losses.repaired > 0 ? ", " : "") + std::to_string(losses.lost) +
            " are lost. A replica that was behind took over, or a server restarted from an older state; "
            "het_tf.Store(durability='replicated') keeps pushes until replicas hold them";
  }
  config_->notice(text);
}

}  // namespace het
